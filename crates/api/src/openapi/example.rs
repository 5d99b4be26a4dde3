//! Examples for each operation: a curl command, the bodies of requests and responses, and the parameters.

use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// URL of the server in the examples of the document.
const SERVER: &str = "http://127.0.0.1:7171";

/// Adds examples to every operation of a document.
pub(super) fn add(document: &mut Value) {
    let schemas = document.clone();
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object_mut().into_iter().flatten() {
            let call = curl(&schemas, path, method, operation, SERVER);
            operation["x-codeSamples"] = json!([{"lang": "Shell", "label": "curl", "source": call}]);
            for parameter in operation["parameters"].as_array_mut().into_iter().flatten() {
                add_to_parameter(&schemas, parameter);
            }
            if let Some(body) = operation.get_mut("requestBody") {
                add_to_content(&schemas, body);
            }
            for response in
                operation["responses"].as_object_mut().into_iter().flat_map(|all| all.values_mut())
            {
                add_to_content(&schemas, response);
            }
        }
    }
}

fn add_to_parameter(schemas: &Value, parameter: &mut Value) {
    let name = parameter["name"].as_str().unwrap_or_default();
    if parameter["in"] == "path" {
        let id = parameter_example(name);
        let number = id.parse::<i64>().ok().filter(|_| parameter["schema"]["type"] == "integer");
        parameter["example"] = number.map_or_else(|| json!(id), |number| json!(number));
    } else if parameter["required"] == true {
        parameter["example"] = example(schemas, &parameter["schema"], 0);
    }
}

fn add_to_content(schemas: &Value, described: &mut Value) {
    if let Some(content) = described.pointer_mut("/content/application~1json") {
        content["example"] = named_example(schemas, &content["schema"], "", 0);
    }
}

/// Returns the schema that a reference names, or the schema itself.
pub(crate) fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let path = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    path.and_then(|path| document.pointer(path)).unwrap_or(schema)
}

/// Renders a curl command for an operation.
pub(crate) fn curl(document: &Value, path: &str, method: &str, operation: &Value, server: &str) -> String {
    let mut url = path.to_owned();
    let mut sign = '?';
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default();
        if parameter["in"] == "path" {
            url = url.replace(&format!("{{{name}}}"), parameter_example(name));
        } else if parameter["in"] == "query" && parameter["required"] == true {
            let value =
                if name == "scope" { "project:shop".into() } else { plain(document, &parameter["schema"]) };
            let _ = write!(url, "{sign}{name}={value}");
            sign = '&';
        }
    }
    let mut call = format!("curl -sS -X {} '{server}{url}'", method.to_uppercase());
    if operation["security"].as_array().is_some_and(|schemes| !schemes.is_empty()) {
        call.push_str(" \\\n  -H \"Authorization: Bearer $TIDEMILL_TOKEN\"");
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        let body = example(document, body, 0).to_string().replace('\'', "'\\''");
        let _ = write!(call, " \\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'");
    }
    call
}

/// Example value of a path parameter.
fn parameter_example(name: &str) -> &'static str {
    match name {
        "run" => "run-018f3c5e-0000-7000-8000-000000000000",
        "worker" | "token" | "sync" => "018f3c5e-0000-7000-8000-000000000000",
        "project" => "shop",
        "feed" => "nivoda-natural",
        "schedule" => "nightly",
        "queue" => "work-items",
        "rule" => "1",
        _ => "name",
    }
}

fn plain(document: &Value, schema: &Value) -> String {
    let value = example(document, schema, 0);
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Limit of nested references and fields, so that a schema that refers to itself ends.
const DEPTH_MAX: usize = 16;

/// Smallest example value of a schema: only required fields, and pages with one entry.
fn example(document: &Value, schema: &Value, depth: usize) -> Value {
    named_example(document, schema, "", depth)
}

/// Like [`example`]. A text without a format of its own is chosen by the name of its field.
fn named_example(document: &Value, schema: &Value, name: &str, depth: usize) -> Value {
    let own = schema["examples"][0].clone();
    if !own.is_null() {
        return own;
    }
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    if schema.get("$ref").is_some() {
        return named_example(document, resolve(document, schema), name, depth + 1);
    }
    let choices = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array());
    if let Some(choice) = choices.and_then(|choices| choices.first()) {
        return named_example(document, choice, name, depth + 1);
    }
    if let Some(only) = schema.get("const") {
        return only.clone();
    }
    if let Some(first) = schema["enum"].as_array().and_then(|known| known.first()) {
        return first.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("object");
    match kind {
        "string" => text(schema, name),
        "null" => Value::Null,
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        "boolean" => json!(false),
        // An empty list would show nothing of its entries.
        "array" if name == "items" || schema["minItems"].as_u64().is_some_and(|least| least > 0) => {
            json!([named_example(document, &schema["items"], name, depth + 1)])
        }
        "array" => json!([]),
        _ => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let fields = required.map(|name| {
                let field = &schema["properties"][name];
                (name.to_owned(), named_example(document, field, name, depth + 1))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

/// Example of a text field that has no pattern, by the name of the field.
fn field_example(name: &str) -> &'static str {
    match name {
        "project" | "project_id" => "shop",
        "env" => "staging",
        "feed" => "nivoda-natural",
        "host" => "build-1",
        "hook" => "pushes",
        "queue" => "work-items",
        "job" | "job_id" => "test",
        "version" => env!("CARGO_PKG_VERSION"),
        "worker" | "claimed_by" => "worker-1",
        "url" | "endpoint" => "https://example.com/",
        "message" => "the tests passed",
        "time_zone" => "Europe/Zurich",
        "cron" => "0 3 * * *",
        "secret_env" => "HOOK_SECRET",
        _ => "text",
    }
}

fn text(schema: &Value, name: &str) -> Value {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    let value = match schema["format"].as_str() {
        Some("date-time") => "2026-02-14T10:30:00Z",
        Some("uuid") => "018f3c5e-0000-7000-8000-000000000000",
        Some(_) | None if pattern.starts_with("^run-") => "run-018f3c5e-0000-7000-8000-000000000000",
        Some(_) | None if pattern.starts_with("^((project|") => "project:shop",
        Some(_) | None if pattern.starts_with("^[a-z0-9]") => "staging",
        Some(_) | None if pattern.starts_with("^[^/]+/") => "shop/staging",
        Some(_) | None
            if pattern.is_empty() && schema["maxLength"].as_u64().is_none_or(|most| most >= 32) =>
        {
            field_example(name)
        }
        Some(_) | None => "text",
    };
    // A secret has a minimum length.
    let least =
        schema["minLength"].as_u64().and_then(|least| usize::try_from(least).ok()).unwrap_or_default();
    if value.len() < least { value.repeat(least.div_ceil(value.len())).into() } else { value.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation_of(endpoint: &crate::endpoint::Endpoint) -> &'static Value {
        &crate::document()["paths"][endpoint.path][endpoint.method.as_str().to_lowercase()]
    }

    #[test]
    fn every_example_body_matches_its_schema() {
        for endpoint in crate::endpoints() {
            let body = &operation_of(&endpoint)["requestBody"]["content"]["application/json"]["example"];
            let Some(describe) = endpoint.body else { continue };
            let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
            assert_valid(&endpoint, describe(&mut generator), &mut generator, body);
        }
    }

    #[test]
    fn every_example_response_matches_its_schema() {
        for endpoint in crate::endpoints() {
            for response in &endpoint.responses {
                let status = response.status.to_string();
                let Some(content) = operation_of(&endpoint)["responses"][&status]["content"].as_object()
                else {
                    continue;
                };
                let Some(describe) = response.schema.filter(|_| content.contains_key("application/json"))
                else {
                    continue;
                };
                let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
                let mut generator = settings.into_generator();
                let body = &content["application/json"]["example"];
                assert_valid(&endpoint, describe(&mut generator), &mut generator, body);
            }
        }
    }

    fn assert_valid(
        endpoint: &crate::endpoint::Endpoint,
        mut schema: schemars::Schema,
        generator: &mut schemars::SchemaGenerator,
        example: &Value,
    ) {
        schema.insert("$defs".to_owned(), Value::Object(generator.take_definitions(true)));
        let faults = crate::extract::CompiledSchema::new(schema).validate(example);
        assert!(faults.is_empty(), "{} {}: {faults:?} in {example}", endpoint.method, endpoint.path);
    }

    #[test]
    fn every_operation_has_an_example_call_with_its_path() {
        for endpoint in crate::endpoints() {
            let operation = operation_of(&endpoint);
            let call = operation["x-codeSamples"][0]["source"].as_str().unwrap();
            assert!(call.starts_with(&format!("curl -sS -X {} '{SERVER}/", endpoint.method)), "{call}");
            assert!(!call.contains('{') || endpoint.body.is_some(), "{call}");
            assert_eq!(call.contains("$TIDEMILL_TOKEN"), endpoint.permission.is_some(), "{call}");
            for response in operation["responses"].as_object().unwrap().values() {
                assert!(response.get("content").is_none_or(Value::is_object), "{call}: {response}");
            }
            for parameter in operation["parameters"].as_array().unwrap() {
                let is_needed = parameter["required"] == true;
                assert_eq!(parameter.get("example").is_some(), is_needed, "{call}: {parameter}");
            }
        }
    }
}
