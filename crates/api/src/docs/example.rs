//! A curl example for each operation.

use super::resolve;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Renders a curl command for an operation.
pub(super) fn curl(document: &Value, path: &str, method: &str, operation: &Value, server: &str) -> String {
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
    if operation.get("security").is_some() {
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

/// Smallest example value of a schema: only required fields.
fn example(document: &Value, schema: &Value, depth: usize) -> Value {
    let own = schema["examples"][0].clone();
    if !own.is_null() {
        return own;
    }
    if depth > 8 {
        return Value::Null;
    }
    if schema.get("$ref").is_some() {
        return example(document, resolve(document, schema), depth + 1);
    }
    let choices = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array());
    if let Some(choice) = choices.and_then(|choices| choices.first()) {
        return example(document, choice, depth + 1);
    }
    if let Some(only) = schema.get("const") {
        return only.clone();
    }
    if let Some(first) = schema["enum"].as_array().and_then(|known| known.first()) {
        return first.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("object");
    match kind {
        "string" => text(schema),
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        "boolean" => json!(false),
        "array" if schema["minItems"].as_u64().is_some_and(|least| least > 0) => {
            json!([example(document, &schema["items"], depth + 1)])
        }
        "array" => json!([]),
        _ => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let fields = required
                .map(|name| (name.to_owned(), example(document, &schema["properties"][name], depth + 1)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

fn text(schema: &Value) -> Value {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    let value = match schema["format"].as_str() {
        Some("date-time") => "2026-02-14T10:30:00Z",
        Some("uuid") => "018f3c5e-0000-7000-8000-000000000000",
        Some(_) | None if pattern.starts_with("^run-") => "run-018f3c5e-0000-7000-8000-000000000000",
        Some(_) | None if pattern.starts_with("^((project|") => "project:shop",
        Some(_) | None if pattern.starts_with("^[a-z0-9]") => "staging",
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

    #[test]
    fn every_example_body_matches_its_schema() {
        let document = crate::document();
        for endpoint in crate::endpoints() {
            let operation = &document["paths"][endpoint.path][endpoint.method.as_str().to_lowercase()];
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            let Some(describe) = endpoint.body else { continue };
            let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
            let mut schema = describe(&mut generator);
            schema.insert("$defs".to_owned(), Value::Object(generator.take_definitions(true)));
            let faults = crate::extract::CompiledSchema::new(schema).validate(&example(document, body, 0));
            assert!(faults.is_empty(), "{} {}: {faults:?}", endpoint.method, endpoint.path);
        }
    }
}
