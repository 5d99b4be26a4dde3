//! Rewrites parts of the document that are valid, but that generators of clients cannot read.

use serde_json::{Value, json};

/// Makes the document readable for generators of clients:
///
/// - A schema `true` becomes an object schema without conditions: openapi-python-client refuses booleans.
/// - The default of an optional field moves to its description: openapi-typescript makes fields with a default
///   required.
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
    fn default_of_an_optional_field_is_in_its_description() {
        let backoff = &crate::document()["components"]["schemas"]["NewRun"]["properties"]["backoff_secs"];
        assert!(backoff["description"].as_str().unwrap().ends_with(" Default: 5."), "{backoff}");
    }
}
