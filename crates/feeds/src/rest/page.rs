//! Reads the records of a page.

use tidemill_core::Timestamp;
use tidemill_core::digest::sha256;
use tidemill_core::feed_definition::paging::DeleteFlag;
use tidemill_core::feed_definition::{CursorValue, FeedDefinition, JsonPath, JsonValue, Place};
use tidemill_core::limits::{KEY_BYTES_MAX, MESSAGE_BYTES_MAX};

/// A record of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestItem {
    /// Id of the record, unique within the feed. A composite id is a JSON array of its parts.
    pub record_id: String,
    /// The record as JSON text without spaces. Numbers keep their digits.
    pub payload: String,
    /// SHA-256 of the payload.
    pub payload_hash: [u8; 32],
    /// Index within the page, counted from 0.
    pub place: usize,
    /// Whether the record is marked as deleted.
    pub is_deleted: bool,
    /// Value of the incremental cursor.
    pub cursor: Option<CursorValue>,
}

/// A record that cannot be stored. The rest of the page is processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestRejection {
    /// Id of the record, if it has a usable one.
    pub record_id: Option<String>,
    /// Index within the page, counted from 0.
    pub place: usize,
    /// Reason of the rejection.
    pub reason: String,
    /// The record as JSON text, truncated.
    pub payload: String,
    /// SHA-256 of the complete text.
    pub digest: [u8; 32],
}

/// One page of a source, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestPage {
    pub items: Vec<RestItem>,
    pub rejected: Vec<RestRejection>,
    /// Place of the next page; `None` at the end of the list.
    pub next: Option<Place>,
    /// Whether the list ends with this page.
    pub is_last: bool,
    /// Total that the source reported.
    pub total: Option<u64>,
    /// Whether the primary keys rise strictly, from the last key of the page before. False for lists that are not read
    /// by their key.
    pub keys_rise: bool,
    /// Time by the source's clock.
    pub source_time: Option<Timestamp>,
}

/// Reads records. Rejects a record that is no object, has no usable id, is too large or cannot be stored.
pub(super) fn read(
    records: &[&JsonValue],
    definition: &FeedDefinition,
    bytes_max: usize,
) -> (Vec<RestItem>, Vec<RestRejection>) {
    let (mut items, mut rejected) = (Vec::with_capacity(records.len()), Vec::new());
    for (place, record) in records.iter().enumerate() {
        let payload = record.to_json();
        let found = check(record, &payload, definition, bytes_max);
        match found {
            Ok(record_id) => items.push(RestItem {
                record_id,
                payload_hash: sha256(payload.as_bytes()),
                payload,
                place,
                is_deleted: is_deleted(record, definition),
                cursor: definition.incremental.as_ref().and_then(|incremental| incremental.cursor_of(record)),
            }),
            Err((record_id, reason)) => {
                let digest = sha256(payload.as_bytes());
                let payload = payload[..payload.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned();
                rejected.push(RestRejection { record_id, place, reason, payload, digest });
            }
        }
    }
    (items, rejected)
}

/// Returns the id of a record that can be stored, or the id and the reason why it cannot.
fn check(
    record: &JsonValue,
    payload: &str,
    definition: &FeedDefinition,
    bytes_max: usize,
) -> Result<String, (Option<String>, String)> {
    if !matches!(record, JsonValue::Object(_)) {
        return Err((None, format!("the record is {}, not an object", record.kind())));
    }
    let id = record_id(record, &definition.resource.primary_key).map_err(|reason| (None, reason))?;
    if payload.len() > bytes_max {
        let reason = format!("the record has {} bytes, more than the limit of {bytes_max}", payload.len());
        return Err((Some(id), reason));
    }
    if let Some(what) = record.unstorable() {
        return Err((Some(id), format!("the record contains {what}, which databases cannot store")));
    }
    Ok(id)
}

/// Returns the id of a record. Its text is not trimmed: ids that differ only in a space are different records.
pub(super) fn record_id(record: &JsonValue, keys: &[JsonPath]) -> Result<String, String> {
    let part = |key: &JsonPath| match key.select(record) {
        Some(JsonValue::Text(text) | JsonValue::Number(text)) if !text.trim().is_empty() => Ok(text.as_str()),
        Some(JsonValue::Unstorable(what)) => {
            Err(format!("`{key}` contains {what}, which databases cannot store"))
        }
        Some(JsonValue::Bool(_) | JsonValue::List(_) | JsonValue::Object(_)) => {
            Err(format!("`{key}` is not a text or a number"))
        }
        Some(JsonValue::Null | JsonValue::Text(_) | JsonValue::Number(_)) | None => {
            Err(format!("`{key}` is missing"))
        }
    };
    let parts = keys.iter().map(part).collect::<Result<Vec<&str>, String>>()?;
    let id = match parts.as_slice() {
        [id] => (*id).to_owned(),
        parts => {
            JsonValue::List(parts.iter().map(|part| JsonValue::Text((*part).to_owned())).collect()).to_json()
        }
    };
    if id.len() > KEY_BYTES_MAX {
        return Err(format!("the id is longer than {KEY_BYTES_MAX} bytes"));
    }
    Ok(id)
}

/// Returns whether the flag of the definition marks a record as deleted.
pub(super) fn is_deleted(record: &JsonValue, definition: &FeedDefinition) -> bool {
    definition.deletes.flag.as_ref().is_some_and(|flag| is_flagged(record, flag))
}

/// Returns whether a flag marks a record as deleted.
pub(super) fn is_flagged(record: &JsonValue, flag: &DeleteFlag) -> bool {
    match (flag.path.select(record), &flag.equals) {
        (None | Some(JsonValue::Null), _) => false,
        (Some(JsonValue::Bool(value)), Some(expected)) => value.to_string() == *expected,
        (Some(value), Some(expected)) => value.scalar() == Some(expected),
        (Some(JsonValue::Bool(value)), None) => *value,
        (Some(_), None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_core::feed_definition::parse;

    fn definition(key: &str, deletes: &str) -> FeedDefinition {
        let text = format!(
            "version: 1\nfeed: f\nclient: {{base_url: https://x.test}}\nresource: {{path: /x, primary_key: {key}}}\n\
             deletes: {deletes}\ninto: {{table: s.t}}\n"
        );
        parse(&text).unwrap()
    }

    fn page(definition: &FeedDefinition, text: &str) -> (Vec<RestItem>, Vec<RestRejection>) {
        let list = JsonValue::parse(text.as_bytes(), 64).unwrap();
        let records: Vec<&JsonValue> = list.items().unwrap().iter().collect();
        read(&records, definition, 1_000)
    }

    #[test]
    fn payload_is_minimal_json_with_exact_numbers() {
        let (items, rejected) =
            page(&definition("id", "{}"), r#"[{ "id": 7, "n": 123456789012345678901.50 }]"#);
        assert_eq!(items[0].payload, r#"{"id":7,"n":123456789012345678901.50}"#);
        assert_eq!((items[0].record_id.as_str(), rejected.len()), ("7", 0));
        assert_eq!(items[0].payload_hash, sha256(items[0].payload.as_bytes()));
    }

    #[test]
    fn unusable_records_are_rejected_and_the_rest_is_read() {
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        let large = "y".repeat(2_000);
        let text = format!(
            r#"[{{"id":"a"}},{{"x":1}},{{"id":null}},{{"id":" "}},{{"id":"a","v":2}},7,{{"id":"{long}"}},
            {{"id":"b","t":"\u0000"}},{{"id":"c\u0000"}},{{"id":"d","t":"{large}"}},{{"id":[1]}},{{"id":"e"}}]"#
        );
        let (items, rejected) = page(&definition("id", "{}"), &text);
        let ids: Vec<_> = items.iter().map(|item| item.record_id.as_str()).collect();
        // The page reader handles duplicate ids: it keeps the last version.
        assert_eq!(ids, ["a", "a", "e"]);
        let reasons: Vec<_> = rejected.iter().map(|bad| (bad.place, bad.reason.as_str())).collect();
        assert_eq!(
            reasons,
            [
                (1, "`id` is missing"),
                (2, "`id` is missing"),
                (3, "`id` is missing"),
                (5, "the record is a number, not an object"),
                (6, "the id is longer than 1024 bytes"),
                (7, "the record contains a NUL character, which databases cannot store"),
                (8, "`id` contains a NUL character, which databases cannot store"),
                (9, "the record has 2017 bytes, more than the limit of 1000"),
                (10, "`id` is not a text or a number"),
            ]
        );
        assert_eq!(rejected[5].record_id.as_deref(), Some("b"));
    }

    #[test]
    fn composite_id_is_a_json_array() {
        let (items, _) =
            page(&definition("[shop, no]", "{}"), r#"[{"shop":"a,b","no":1},{"shop":"a","no":"b,1"}]"#);
        let ids: Vec<_> = items.iter().map(|item| item.record_id.as_str()).collect();
        assert_eq!(ids, [r#"["a,b","1"]"#, r#"["a","b,1"]"#]);
    }

    #[test]
    fn delete_flag_marks_records() {
        let text = concat!(
            r#"[{"id":1,"gone":true},{"id":2,"gone":false},{"id":3,"gone":null},"#,
            r#"{"id":4,"gone":"2026"},{"id":5}]"#
        );
        let deleted = |deletes: &str| {
            let (items, _) = page(&definition("id", deletes), text);
            items.into_iter().filter(|item| item.is_deleted).map(|item| item.record_id).collect::<Vec<_>>()
        };
        assert_eq!(deleted("{flag: {path: gone}}"), ["1", "4"]);
        assert_eq!(deleted("{flag: {path: gone, equals: '2026'}}"), ["4"]);
        assert_eq!(deleted("{flag: {path: gone, equals: 'true'}}"), ["1"]);
        assert_eq!(deleted("{}"), Vec::<String>::new());
    }
}
