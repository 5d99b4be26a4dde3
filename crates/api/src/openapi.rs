//! The OpenAPI document, made from the routes themselves.

mod problems;

use crate::codes;
use crate::endpoint::{Answer, Endpoint};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;
use tidemill_wire::Problem;

/// The whole document. What is asked and what is answered are described apart: a field that a request may leave out is
/// there in every answer.
///
/// It is the same for as long as the process lives, and is made once: anybody may ask for it.
pub fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(make)
}

fn make() -> Value {
    let mut schemas = Schemas::new();
    let problem = schemas.said.subschema_for::<Problem>();
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
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": TAGS.iter().map(|(name, says)| json!({"name": name, "description": says})).collect::<Vec<_>>(),
        "paths": schemas.joined(&mut Value::Object(paths)),
        "components": {
            "schemas": with_codes(schemas.definitions()),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": problems::shared(problem.as_value()),
        },
    })
}

/// The same, where a problem says which codes there are.
fn with_codes(mut definitions: Map<String, Value>) -> Map<String, Value> {
    if let Some(problem) = definitions.get_mut("Problem") {
        problem["properties"]["code"]["enum"] = codes::ALL.iter().map(|(name, _)| *name).collect();
    }
    definitions
}

/// The parts of the product, in the order in which they are read.
pub(crate) const TAGS: [(&str, &str); 15] = [
    ("runs", "A run is one piece of work, from queued to done."),
    ("work", "What workers do: claim, report, finish."),
    ("graphs", "Jobs with dependencies: submit, look, stop, try again."),
    ("agents", "Who carries jobs out: what people say about agents, and what agents ask and report."),
    ("events", "What happens, as it happens."),
    ("projects", "Projects, their environments, and what holds them."),
    ("schedules", "What the clock queues."),
    ("feeds", "Where records come from, and how far they are."),
    ("syncs", "One pass over a feed's window."),
    ("rules", "What a stone is sold for."),
    ("queues", "Messages, and those that nobody could carry out."),
    ("hooks", "Others who queue runs, by signed webhooks."),
    ("alerts", "What people are told of."),
    ("access", "Who may do what."),
    ("server", "The server itself."),
];

/// What is asked, and what is said: the same type may look different there.
struct Schemas {
    asked: SchemaGenerator,
    said: SchemaGenerator,
}

/// Where definitions are found; what is asked has a place of its own until both are joined.
const SAID: &str = "#/components/schemas/";
const ASKED: &str = "#/components/asked/";

impl Schemas {
    fn new() -> Self {
        let generator = |path: &'static str, settings: SchemaSettings| {
            let mut settings = settings;
            settings.definitions_path = path.into();
            settings.meta_schema = None;
            SchemaGenerator::new(settings)
        };
        Self {
            asked: generator("/components/asked", SchemaSettings::draft2020_12()),
            said: generator("/components/schemas", SchemaSettings::draft2020_12().for_serialize()),
        }
    }

    /// Under which name a definition of what is asked is found: its own, unless an answer's looks different.
    fn name_of(&mut self, name: &str) -> String {
        let asked = self.asked.definitions().get(name).cloned().unwrap_or_default();
        let asked = asked.to_string().replace(ASKED, SAID);
        let said = self.said.definitions().get(name).map(Value::to_string);
        if said.is_some_and(|said| said != asked) { format!("{name}Asked") } else { name.to_owned() }
    }

    /// The same with every reference at its place.
    fn joined(&mut self, value: &mut Value) -> Value {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(path)) = fields.get_mut("$ref")
                    && let Some(name) = path.strip_prefix(ASKED)
                {
                    *path = format!("{SAID}{}", self.name_of(name));
                }
                for part in fields.values_mut() {
                    *part = self.joined(part);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| *item = self.joined(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        value.take()
    }

    /// Every definition, of what is asked and what is said, by name.
    fn definitions(&mut self) -> Map<String, Value> {
        let mut all = self.said.definitions().clone();
        for (name, mut definition) in self.asked.definitions().clone() {
            let own = self.name_of(&name);
            let joined = self.joined(&mut definition);
            all.insert(own, joined);
        }
        all.sort_keys();
        all
    }
}

fn operation(endpoint: &Endpoint, schemas: &mut Schemas) -> Value {
    let mut parameters = in_path(endpoint.path);
    if let Some(query) = endpoint.query {
        parameters.extend(in_query(query(&mut schemas.asked).as_value()));
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
        responses.insert(answer.status.to_string(), response(answer, &mut schemas.said));
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
        let schema = body(&mut schemas.asked);
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

fn in_path(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let schema = match name {
                // Other ids can be looked up too, if SQL wrote them.
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
