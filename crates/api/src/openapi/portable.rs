//! Rewrites parts of the document that are valid, but that generators of clients cannot read.

use serde_json::{Map, Value, json};

/// Makes the document readable for generators of clients:
///
/// - A schema `true` becomes an object schema without conditions: openapi-python-client refuses booleans.
/// - The default of an optional field moves to its description: openapi-typescript makes fields with a default
///   required.
/// - An object without listed properties explicitly allows all: openapi-typescript allows none otherwise.
/// - Alternatives that are one text each become an enumeration, like those without descriptions of their values.
pub(super) fn mend(document: &mut Value) {
    for schema in
        document["components"]["schemas"].as_object_mut().into_iter().flat_map(|all| all.values_mut())
    {
        mend_schema(schema);
    }
    for methods in document["paths"].as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
        for operation in methods.as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
            if let Some(body) = operation.pointer_mut("/requestBody/content/application~1json/schema") {
                mend_schema(body);
            }
        }
    }
}

fn mend_schema(schema: &mut Value) {
    if *schema == Value::Bool(true) {
        *schema = json!({"description": "Any JSON value."});
    }
    let Some(parts) = schema.as_object_mut() else { return };
    if parts.get("type").is_some_and(|kind| kind == "object") && !parts.contains_key("properties") {
        parts.entry("additionalProperties").or_insert(Value::Bool(true));
    }
    join_constants(parts);
    for (keyword, part) in parts {
        match (keyword.as_str(), part) {
            ("properties", Value::Object(fields)) => {
                for field in fields.values_mut() {
                    move_default(field);
                    mend_schema(field);
                }
            }
            ("oneOf" | "anyOf", Value::Array(choices)) => choices.iter_mut().for_each(mend_schema),
            ("items", items) => mend_schema(items),
            _ => {}
        }
    }
}

/// Turns alternatives that are one text each into an enumeration. Its description explains the values.
fn join_constants(parts: &mut Map<String, Value>) {
    let choices = parts.get("oneOf").and_then(Value::as_array);
    let choices = choices.filter(|choices| choices.iter().all(|choice| choice["const"].is_string()));
    let Some(choices) = choices else { return };
    let values: Vec<Value> = choices.iter().map(|choice| choice["const"].clone()).collect();
    let mut sentences: Vec<String> =
        parts.get("description").and_then(Value::as_str).map(str::to_owned).into_iter().collect();
    for choice in choices {
        if let (Some(value), Some(meaning)) = (choice["const"].as_str(), choice["description"].as_str()) {
            sentences.push(format!("`{value}`: {meaning}"));
        }
    }
    parts.remove("oneOf");
    parts.insert("type".to_owned(), json!("string"));
    parts.insert("enum".to_owned(), values.into());
    parts.insert("description".to_owned(), sentences.join(" ").into());
}

fn move_default(field: &mut Value) {
    let Some(default) = field.as_object_mut().and_then(|field| field.remove("default")) else { return };
    if default.is_null() {
        return;
    }
    let description = field["description"].as_str().unwrap_or_default();
    let gap = if description.is_empty() { "" } else { " " };
    field["description"] = format!("{description}{gap}Default: {default}.").into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_schema_is_a_boolean_and_no_field_has_a_default() {
        fn check(schema: &Value, place: &str) {
            assert!(!schema.is_boolean(), "{place} is {schema}");
            let is_open = schema["type"] != "object" || schema.get("properties").is_some();
            assert!(is_open || schema.get("additionalProperties").is_some(), "{place} allows no property");
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                assert!(field.get("default").is_none(), "{place}.{name} has a default");
                check(field, &format!("{place}.{name}"));
            }
            for choice in
                ["oneOf", "anyOf"].iter().flat_map(|key| schema[key].as_array().into_iter().flatten())
            {
                check(choice, place);
            }
            if let Some(items) = schema.get("items") {
                check(items, place);
            }
        }
        let document = crate::document();
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            check(schema, name);
        }
        for endpoint in crate::endpoints() {
            let operation = &document["paths"][endpoint.path][endpoint.method.as_str().to_lowercase()];
            assert!(operation["security"].is_array() && operation["description"].is_string(), "{operation}");
            let body = operation.pointer("/requestBody/content/application~1json");
            assert_eq!(body.is_some(), endpoint.body.is_some(), "{}", endpoint.path);
            if let Some(body) = body {
                check(&body["schema"], endpoint.path);
            }
        }
    }

    #[test]
    fn described_texts_become_an_enumeration() {
        let outcome = &crate::document()["components"]["schemas"]["CancelOutcome"];
        assert_eq!(outcome["enum"][0], "cancelled", "{outcome}");
        assert!(outcome["description"].as_str().unwrap().contains("`requested`: "), "{outcome}");
        assert!(outcome.get("oneOf").is_none(), "{outcome}");
    }

    #[test]
    fn default_of_an_optional_field_is_in_its_description() {
        let backoff = &crate::document()["components"]["schemas"]["NewRun"]["properties"]["backoff_secs"];
        assert!(backoff["description"].as_str().unwrap().ends_with(" Default: 5."), "{backoff}");
    }
}
