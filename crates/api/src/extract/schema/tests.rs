//! Tests of schema validation.

use super::*;
use serde_json::json;
use tidemill_wire::claims::ClaimRequest;
use tidemill_wire::rules::{ImportRules, NewRule};
use tidemill_wire::runs::{Append, NewRun};

fn fields<T: JsonSchema + 'static>(value: &Value) -> Vec<(String, String)> {
    let errors = schema_of::<T>().validate(value);
    errors.into_iter().map(|error| (error.field, error.problem)).collect()
}

#[test]
fn every_error_has_the_path_of_its_field() {
    let found = fields::<Append>(&json!({
        "events": [{"level": "loud", "message": 7}, {"level": "info", "message": "fine", "extra": 1}],
        "epoch": "one", "worker": "a\0b", "wrong": true,
    }));
    let named: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    let expected = ["epoch", "events[0].level", "events[0].message", "events[1].extra", "worker", "wrong"];
    let mut sorted = named.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected, "{found:?}");
    assert!(found.contains(&("events[0].level".into(), "must be one of debug, info, warn, error".into())));
}

#[test]
fn missing_out_of_range_and_malformed_fields_are_reported() {
    let found = fields::<NewRun>(&json!({
        "env": "", "max_attempts": 0, "priority": 4_000_000_000_u64, "available_at": "soon",
        "labels": ["a,b"], "metadata": [],
    }));
    let named: std::collections::BTreeSet<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    let expected = ["available_at", "env", "labels[0]", "max_attempts", "metadata", "priority", "project"];
    assert_eq!(named, expected.into_iter().collect(), "{found:?}");
    assert!(found.contains(&("max_attempts".into(), "is 0; it must be between 1 and 1000".into())));
    assert!(found.contains(&("project".into(), "is missing".into())));
}

#[test]
fn valid_requests_have_no_errors() {
    assert_eq!(fields::<NewRun>(&json!({"project": "shop", "env": "staging", "timeout_secs": null})), []);
    assert_eq!(fields::<ClaimRequest>(&json!({"worker": "w", "labels": ["x"], "projects": ["shop"]})), []);
    assert_eq!(fields::<ImportRules>(&json!({"rules": [{"markup": 10_000, "stone_type": "lab"}]})), []);
}

#[test]
fn number_outside_its_format_is_refused() {
    let found = fields::<NewRule>(&json!({"markup": 1, "priority": 1_u64 << 40}));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "priority");
}

/// Keywords that validation supports or may ignore.
const SUPPORTED: [&str; 22] = [
    "$ref",
    "$defs",
    "anyOf",
    "oneOf",
    "allOf",
    "type",
    "enum",
    "const",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "items",
    "required",
    "properties",
    "additionalProperties",
    "default",
    "description",
];
/// Keywords that are only documentation.
const DOCUMENTATION: [&str; 3] = ["title", "examples", "$schema"];

/// Collects the keywords of a schema recursively.
fn keywords(schema: &Value, found: &mut std::collections::BTreeSet<String>) {
    let Some(fields) = schema.as_object() else { return };
    for (key, value) in fields {
        found.insert(key.clone());
        match key.as_str() {
            "properties" | "$defs" => {
                value.as_object().into_iter().flatten().for_each(|(_, part)| keywords(part, found));
            }
            "anyOf" | "oneOf" | "allOf" => {
                value.as_array().into_iter().flatten().for_each(|part| keywords(part, found));
            }
            "items" | "additionalProperties" => keywords(value, found),
            _ => {}
        }
    }
}

#[test]
fn request_schemas_use_only_supported_keywords() {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut found = std::collections::BTreeSet::new();
    for endpoint in crate::endpoints() {
        for describe in [endpoint.body, endpoint.query].into_iter().flatten() {
            keywords(describe(&mut generator).as_value(), &mut found);
        }
    }
    for definition in generator.take_definitions(true).values() {
        keywords(definition, &mut found);
    }
    let unknown: Vec<&String> = found
        .iter()
        .filter(|key| !SUPPORTED.contains(&key.as_str()) && !DOCUMENTATION.contains(&key.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
