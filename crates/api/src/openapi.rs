//! The OpenAPI document, made from the routes themselves.

use crate::endpoint::{Answer, Endpoint};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema as _, SchemaGenerator};
use serde_json::{Map, Value, json};
use tidemill_core::RunId;
use tidemill_wire::Problem;

/// The whole document.
pub fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut schemas = SchemaGenerator::new(settings);
    let problem = schemas.subschema_for::<Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in crate::endpoints() {
        let described = operation(&endpoint, &mut schemas);
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_lowercase()] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemill",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Takes a run from queued to done.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Problem": {
                "description": "Why the request was not carried out",
                "content": {"application/json": {"schema": problem}},
            }},
        },
    })
}

fn operation(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let mut parameters = in_path(endpoint.path, schemas);
    if let Some(query) = endpoint.query {
        parameters.extend(in_query(query(schemas).as_value()));
    }
    if endpoint.keyed {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "Makes asking twice the same as asking once",
            "schema": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[!-~]+$"},
        }));
    }
    let mut responses = Map::new();
    for answer in &endpoint.answers {
        responses.insert(answer.status.to_string(), response(answer, schemas));
    }
    responses.insert("default".to_owned(), json!({"$ref": "#/components/responses/Problem"}));
    let mut operation = json!({
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "operationId": operation_id(endpoint),
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = endpoint.body {
        let schema = body(schemas);
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    if let Some(allowed) = endpoint.allowed {
        operation["security"] = json!([{"token": []}]);
        let roles: Vec<&str> = allowed.roles().iter().map(|role| role.as_str()).collect();
        operation["description"] = format!("For tokens of role {}.", roles.join(", ")).into();
    }
    operation
}

/// A name that is the same for as long as method and path are.
fn operation_id(endpoint: &Endpoint) -> String {
    let mut words = vec![endpoint.method.as_str().to_lowercase()];
    let parts = endpoint.path.split(['/', '.', '-']).filter(|part| !part.is_empty() && *part != "v1");
    words.extend(parts.map(|part| part.trim_matches(['{', '}']).to_owned()));
    words.join("_")
}

fn response(answer: &Answer, schemas: &mut SchemaGenerator) -> Value {
    match (answer.schema, answer.media) {
        (Some(schema), media) => {
            let schema = schema(schemas);
            json!({"description": answer.says, "content": {media: {"schema": schema}}})
        }
        (None, "application/json") => json!({"description": answer.says}),
        (None, media) => {
            json!({"description": answer.says, "content": {media: {"schema": {"type": "string"}}}})
        }
    }
}

fn in_path(path: &str, schemas: &mut SchemaGenerator) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let schema = match name {
                "run" => RunId::json_schema(schemas).to_value(),
                "worker" | "token" => json!({"type": "string", "format": "uuid"}),
                "rule" => json!({"type": "integer", "format": "int64"}),
                _ => json!({"type": "string", "minLength": 1, "maxLength": 128}),
            };
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        })
        .collect()
}

/// The fields of a query as parameters.
fn in_query(schema: &Value) -> Vec<Value> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object();
    let parameter = |(name, schema): (&String, &Value)| {
        let says = schema["description"].as_str().unwrap_or_default();
        let needed = required.contains(&name.as_str());
        json!({
            "name": name, "in": "query", "required": needed, "description": says,
            "schema": not_null(schema.clone()),
        })
    };
    properties.into_iter().flatten().map(parameter).collect()
}

/// A query has no null: what may be left out is left out.
fn not_null(mut schema: Value) -> Value {
    if let Some(types) = schema["type"].as_array() {
        let first = types.iter().find(|kind| *kind != "null").cloned();
        schema["type"] = first.unwrap_or_else(|| "string".into());
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let chosen = choices.iter().find(|choice| choice["type"] != "null").cloned();
        return chosen.unwrap_or(schema);
    }
    schema
}
