//! The OpenAPI document, built from the routes.

pub(crate) mod example;
mod portable;
mod problems;

use crate::codes;
use crate::endpoint::{Endpoint, ResponseDoc};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;
use tidemill_wire::Problem;

/// Returns the OpenAPI document. Requests and responses have separate schemas: a field that is optional in a request
/// is always present in a response.
///
/// The document is built once, because unauthenticated clients can request it.
pub fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(build)
}

fn build() -> Value {
    let mut schemas = Schemas::new();
    let problem = schemas.responses.subschema_for::<Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in crate::endpoints() {
        let described = operation(&endpoint, &mut schemas);
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_lowercase()] = described;
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemill",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable run queue with an HTTP API for operators, workers and agents.",
            "contact": {"name": "The Tidemill contributors"},
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags(),
        "paths": schemas.merge_refs(&mut Value::Object(paths)),
        "components": {
            "schemas": with_codes(schemas.definitions()),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": problems::shared(problem.as_value()),
        },
    });
    portable::mend(&mut document);
    example::add(&mut document);
    document
}

/// Adds the list of error codes to the schema of `Problem`.
fn with_codes(mut definitions: Map<String, Value>) -> Map<String, Value> {
    if let Some(problem) = definitions.get_mut("Problem") {
        problem["properties"]["code"]["enum"] = codes::ALL.iter().map(|(name, _)| *name).collect();
    }
    definitions
}

/// Tags in the order of the reference page.
pub(crate) const TAGS: [(&str, &str); 15] = [
    ("runs", "Runs: one piece of work each, from queued to done."),
    ("work", "Endpoints for workers: claim, report, finish."),
    ("graphs", "Graphs of dependent jobs: submit, show, cancel, retry."),
    ("agents", "Agents, which execute the jobs of graphs: operator actions and agent endpoints."),
    ("events", "Live event streams."),
    ("projects", "Projects, their environments, and flags that pause them."),
    ("schedules", "Schedules, which queue runs at fixed times."),
    ("feeds", "Feeds of records, and their watermarks."),
    ("syncs", "Syncs: one pass over a feed's window each."),
    ("rules", "Pricing rules for stones."),
    ("queues", "Message queues and dead letters."),
    ("hooks", "Signed webhooks, which queue runs."),
    ("alerts", "Alerts and their targets."),
    ("access", "Tokens, sessions and the audit log."),
    ("server", "The server itself."),
];

fn tags() -> Vec<Value> {
    TAGS.iter().map(|(name, description)| json!({"name": name, "description": description})).collect()
}

/// Schema generators for requests and responses. The same type may have a different schema in each.
struct Schemas {
    requests: SchemaGenerator,
    responses: SchemaGenerator,
}

/// Paths of definitions. Those of requests have a path of their own until they are merged.
const RESPONSE_PATH: &str = "#/components/schemas/";
const REQUEST_PATH: &str = "#/components/requests/";

impl Schemas {
    fn new() -> Self {
        let generator = |path: &'static str, settings: SchemaSettings| {
            let mut settings = settings;
            settings.definitions_path = path.into();
            settings.meta_schema = None;
            SchemaGenerator::new(settings)
        };
        Self {
            requests: generator("/components/requests", SchemaSettings::draft2020_12()),
            responses: generator("/components/schemas", SchemaSettings::draft2020_12().for_serialize()),
        }
    }

    /// Name of a request definition in the merged document: its own, unless the response schema of that name differs.
    fn name_of(&mut self, name: &str) -> String {
        let request = self.requests.definitions().get(name).cloned().unwrap_or_default();
        let request = request.to_string().replace(REQUEST_PATH, RESPONSE_PATH);
        let responses = self.responses.definitions().get(name).map(Value::to_string);
        if responses.is_some_and(|responses| responses != request) {
            format!("{name}Request")
        } else {
            name.to_owned()
        }
    }

    /// Rewrites every reference to its merged path.
    fn merge_refs(&mut self, value: &mut Value) -> Value {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(path)) = fields.get_mut("$ref")
                    && let Some(name) = path.strip_prefix(REQUEST_PATH)
                {
                    *path = format!("{RESPONSE_PATH}{}", self.name_of(name));
                }
                for part in fields.values_mut() {
                    *part = self.merge_refs(part);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| *item = self.merge_refs(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        value.take()
    }

    /// Returns the merged definitions of requests and responses.
    fn definitions(&mut self) -> Map<String, Value> {
        let mut all = self.responses.definitions().clone();
        for (name, mut definition) in self.requests.definitions().clone() {
            let own = self.name_of(&name);
            let joined = self.merge_refs(&mut definition);
            all.insert(own, joined);
        }
        all.sort_keys();
        all
    }
}

fn operation(endpoint: &Endpoint, schemas: &mut Schemas) -> Value {
    let mut parameters = in_path(endpoint.path);
    if let Some(query) = endpoint.query {
        parameters.extend(in_query(query(&mut schemas.requests).as_value()));
    }
    if endpoint.keyed {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "Idempotency key: a repeated request with the same key returns the first result",
            "schema": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[!-~]+$"},
        }));
    }
    let mut responses = Map::new();
    for response in &endpoint.responses {
        responses.insert(response.status.to_string(), describe_response(response, &mut schemas.responses));
    }
    problems::add(&mut responses, endpoint);
    let mut operation = json!({
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "operationId": operation_id(endpoint),
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = endpoint.body {
        let schema = body(&mut schemas.requests);
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    if let Some(permission) = endpoint.permission {
        operation["security"] = json!([{"token": []}]);
        let roles: Vec<&str> = permission.roles().iter().map(|role| role.as_str()).collect();
        operation["description"] = format!("For tokens of role {}.", roles.join(", ")).into();
    } else {
        operation["security"] = json!([]);
        operation["description"] = "Needs no token.".into();
    }
    operation
}

/// Operation id derived from method and path.
fn operation_id(endpoint: &Endpoint) -> String {
    let mut words = vec![endpoint.method.as_str().to_lowercase()];
    let parts = endpoint.path.split(['/', '.', '-']).filter(|part| !part.is_empty() && *part != "v1");
    words.extend(parts.map(|part| part.trim_matches(['{', '}']).to_owned()));
    words.join("_")
}

fn describe_response(response: &ResponseDoc, schemas: &mut SchemaGenerator) -> Value {
    match (response.schema, response.media) {
        (Some(schema), media) => {
            let schema = schema(schemas);
            json!({"description": response.description, "content": {media: {"schema": schema}}})
        }
        (None, "application/json") => json!({"description": response.description}),
        (None, media) => {
            json!({"description": response.description, "content": {media: {"schema": {"type": "string"}}}})
        }
    }
}

fn in_path(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let schema = match name {
                // Ids written by SQL callers may have another form; they can be looked up as well.
                "run" => json!({"type": "string", "pattern": "^run-[a-z0-9-]{1,60}$"}),
                "worker" | "token" => json!({"type": "string", "format": "uuid"}),
                "rule" => json!({"type": "integer", "format": "int64"}),
                "project" | "feed" | "schedule" | "queue" => {
                    json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,127}$"})
                }
                "sync" => json!({"type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$"}),
                _ => json!({"type": "string", "minLength": 1, "maxLength": 128}),
            };
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        })
        .collect()
}

/// Converts the fields of a query type to parameters.
fn in_query(schema: &Value) -> Vec<Value> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object();
    let parameter = |(name, schema): (&String, &Value)| {
        let description = schema["description"].as_str().unwrap_or_default();
        let needed = required.contains(&name.as_str());
        json!({
            "name": name, "in": "query", "required": needed, "description": description,
            "schema": not_null(schema.clone()),
        })
    };
    properties.into_iter().flatten().map(parameter).collect()
}

/// Removes `null` from a schema: a query parameter is omitted instead.
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
