//! The form of requests: every fault at once, and nothing in our schemas that is not looked at.

use super::*;
use serde_json::json;
use tidemill_wire::claims::Ask;
use tidemill_wire::rules::{ImportRules, NewRule};
use tidemill_wire::runs::{Append, NewRun};

fn fields<T: JsonSchema + 'static>(value: &Value) -> Vec<(String, String)> {
    let faults = shape_of::<T>().faults(value);
    faults.into_iter().map(|fault| (fault.field, fault.problem)).collect()
}

#[test]
fn every_fault_is_named_with_its_place() {
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
fn what_is_missing_out_of_range_or_too_long_is_named() {
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
fn what_is_fine_has_no_fault() {
    assert_eq!(fields::<NewRun>(&json!({"project": "shop", "env": "staging", "timeout_secs": null})), []);
    assert_eq!(fields::<Ask>(&json!({"worker": "w", "labels": ["x"], "projects": ["shop"]})), []);
    assert_eq!(fields::<ImportRules>(&json!({"rules": [{"markup": 10_000, "stone_type": "lab"}]})), []);
}

#[test]
fn a_number_beyond_its_type_is_a_fault_though_no_bound_is_named() {
    let found = fields::<NewRule>(&json!({"markup": 1, "priority": 1_u64 << 40}));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "priority");
}

/// Keywords that say something about the form, or nothing.
const LOOKED_AT: [&str; 22] = [
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
/// Keywords that are for people.
const FOR_PEOPLE: [&str; 3] = ["title", "examples", "$schema"];

/// Every keyword of a schema, wherever it stands.
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
fn no_schema_of_a_request_says_what_is_not_looked_at() {
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
        .filter(|key| !LOOKED_AT.contains(&key.as_str()) && !FOR_PEOPLE.contains(&key.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
