//! JSON documents as PostgreSQL's `jsonb` merges and compares them.

use serde_json::{Map, Number};
use tidemill_core::{Json, RunId};

/// Encodes a list as one parameter for `json_each`.
pub(super) fn list(items: impl IntoIterator<Item = Json>) -> String {
    Json::Array(items.into_iter().collect()).to_string()
}

/// Encodes a list of run ids as one parameter for `json_each`.
pub(super) fn ids(runs: &[&RunId]) -> String {
    list(runs.iter().map(|run| Json::from(run.as_str())))
}

/// Builds an object from the pairs that have a value.
pub(super) fn object_of<const N: usize>(pairs: [(&str, Option<Json>); N]) -> Json {
    let known = pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Json::Object(known.collect())
}

/// `base || notes`: the keys of `notes` replace those of `base`, at the top only.
pub(super) fn merged(base: &Json, notes: &Json) -> Json {
    let mut merged = base.as_object().cloned().unwrap_or_else(Map::new);
    merged.extend(notes.as_object().cloned().unwrap_or_else(Map::new));
    Json::Object(merged)
}

/// `whole @> part`: everything in `part` is in `whole`.
pub(super) fn contains(whole: &Json, part: &Json) -> bool {
    match (whole, part) {
        (Json::Object(whole), Json::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|found| contains(found, value)))
        }
        (Json::Array(whole), Json::Array(part)) => {
            part.iter().all(|value| whole.iter().any(|found| contains(found, value)))
        }
        (Json::Number(whole), Json::Number(part)) => same_number(whole, part),
        (whole, part) => whole == part,
    }
}

/// `a = b`: the order of keys and the spelling of numbers do not matter.
pub(super) fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(value, other)| same(value, other))
        }
        (Json::Number(a), Json::Number(b)) => same_number(a, b),
        (a, b) => a == b,
    }
}

fn same_number(a: &Number, b: &Number) -> bool {
    a == b || ((a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_contains_what_it_has_at_every_depth() {
        let whole = json!({"a": 1, "b": {"c": [1, {"d": 2, "e": 3}]}});
        for part in [json!({}), json!({"a": 1.0}), json!({"b": {"c": [{"d": 2}]}}), json!({"b": {"c": []}})] {
            assert!(contains(&whole, &part), "{part}");
        }
        for part in [json!({"a": 2}), json!({"b": {"c": [2]}}), json!({"b": {"c": 1}}), json!({"z": null})] {
            assert!(!contains(&whole, &part), "{part}");
        }
    }

    #[test]
    fn a_merge_replaces_at_the_top_only() {
        let merged = merged(&json!({"a": {"x": 1}, "b": 2}), &json!({"a": {"y": 1}, "c": null}));
        assert_eq!(merged, json!({"a": {"y": 1}, "b": 2, "c": null}));
    }

    #[test]
    fn equal_documents_may_spell_a_number_differently() {
        assert!(same(&json!({"a": [1, 2.0]}), &json!({"a": [1.0, 2]})));
        assert!(!same(&json!({"a": 1}), &json!({"a": 1, "b": null})));
    }
}
