//! Recognition of an unknown API from one answer: records, id, paginator, total, time field and columns.
//!
//! A guess is returned only if the answer contains evidence for it. Everything else is listed as undecided.

mod paging;
#[cfg(test)]
mod tests;
mod yaml;

pub use yaml::{ClientKeys, TryAuth};

use super::cast::timestamp;
use super::infer::infer_columns;
use super::paging::{Paginator, TotalLocation};
use super::path::JsonPath;
use super::target::Column;
use super::value::JsonValue;
use std::collections::HashSet;

/// Parts of an API that one answer reveals.
#[derive(Debug, Clone, PartialEq)]
pub struct Recognition {
    /// Path of the list of records.
    pub data_selector: Option<JsonPath>,
    /// Number of records in the answer.
    pub records: usize,
    /// Path of the id in a record.
    pub primary_key: Option<JsonPath>,
    pub paginator: Option<Paginator>,
    pub total: Option<TotalLocation>,
    /// Path of the time of the last change in a record.
    pub time_field: Option<JsonPath>,
    pub columns: Vec<Column>,
    /// Questions that the author must answer.
    pub undecided: Vec<String>,
}

/// Levels of objects in which lists and pagination are searched.
const DEPTH_MAX: usize = 4;
/// Objects that are searched at most.
const OBJECTS_MAX: usize = 1_000;

/// Usual names of a list of records, the most usual first.
const LIST_NAMES: [&str; 12] = [
    "data", "items", "results", "records", "rows", "value", "values", "entries", "nodes", "edges", "objects",
    "hits",
];
const ID_NAMES: [&str; 9] = ["id", "_id", "uuid", "guid", "key", "sku", "code", "number", "slug"];
const TIME_NAMES: [&str; 12] = [
    "updated_at",
    "updatedat",
    "updated",
    "modified_at",
    "modifiedat",
    "modified",
    "last_modified",
    "lastmodified",
    "last_updated",
    "lastupdated",
    "changed_at",
    "changedat",
];

/// Recognises an API from the URL of a request and the headers and body of its answer.
pub fn recognise(url: &str, headers: &[(String, String)], body: &JsonValue) -> Recognition {
    let mut undecided = Vec::new();
    let data_selector = find_records(body);
    let records = data_selector.as_ref().and_then(|path| path.select_all(body)).unwrap_or_default();
    if data_selector.is_none() {
        undecided.push("no list of objects was found in the answer; write `data_selector`".to_owned());
    }
    let primary_key = find_id(&records);
    if primary_key.is_none() {
        undecided.push("no unique id was found in the records; write `primary_key`".to_owned());
    }
    let time_field = find_time(&records);
    undecided.push(match &time_field {
        None => "no time of the last change was found; without `incremental`, every sync is full".to_owned(),
        Some(path) => format!(
            "the parameter that asks for changes is unknown; for syncs of changes only, write \
             `incremental: {{cursor_path: {path}, start_param: NAME}}`"
        ),
    });
    let evidence = paging::Evidence::new(url, headers, body, data_selector.as_ref(), records.len());
    let total = evidence.total();
    let paginator = evidence.paginator(total.as_ref(), primary_key.as_ref());
    if paginator.is_none() {
        let advice = "write `paginator: single_page` if the answer is the whole list";
        undecided.push(format!("no pagination was found in the answer; {advice}"));
    }
    let columns = infer_columns(records.iter().copied());
    Recognition {
        records: records.len(),
        data_selector,
        primary_key,
        paginator,
        total,
        time_field,
        columns,
        undecided,
    }
}

/// Finds the list of records: the root, or the list with the most usual name, or the longest one.
pub fn find_records(body: &JsonValue) -> Option<JsonPath> {
    if is_record_list(body) {
        return Some(JsonPath::default());
    }
    let mut best: Option<(usize, usize, JsonPath, &JsonValue)> = None;
    for (path, name, value) in walk(body) {
        if !is_record_list(value) {
            continue;
        }
        let rank =
            LIST_NAMES.iter().position(|usual| name.eq_ignore_ascii_case(usual)).unwrap_or(LIST_NAMES.len());
        let length = value.items().map_or(0, <[JsonValue]>::len);
        // A list with records is better than an empty one; then the name decides, then the length.
        let is_better = best.as_ref().is_none_or(|(other_rank, other_length, ..)| {
            (length > 0, LIST_NAMES.len() - rank, length)
                > (*other_length > 0, LIST_NAMES.len() - other_rank, *other_length)
        });
        if is_better {
            best = Some((rank, length, path, value));
        }
    }
    let (_, length, path, list) = best?;
    let items = list.items().unwrap_or_default();
    let has_nodes = length > 0
        && items.iter().all(|item| item.get("node").is_some_and(|node| !node.entries().is_empty()));
    if has_nodes { format!("{path}[*].node").parse().ok() } else { Some(path) }
}

fn is_record_list(value: &JsonValue) -> bool {
    value.items().is_some_and(|items| items.iter().all(|item| matches!(item, JsonValue::Object(_))))
}

/// Returns every entry of nested objects with its path and key, level by level. Lists are not entered.
fn walk(body: &JsonValue) -> Vec<(JsonPath, &str, &JsonValue)> {
    let mut found: Vec<(JsonPath, &str, &JsonValue)> = Vec::new();
    let mut level: Vec<(JsonPath, &JsonValue)> = vec![(JsonPath::default(), body)];
    for _ in 0..DEPTH_MAX {
        let mut deeper = Vec::new();
        for (path, value) in level {
            for (key, value) in value.entries() {
                if found.len() == OBJECTS_MAX {
                    return found;
                }
                let path = path.child(key.as_str());
                found.push((path.clone(), key, value));
                deeper.push((path, value));
            }
        }
        level = deeper;
    }
    found
}

/// Finds the id: a scalar that every record has and that is unique. Usual names come first.
fn find_id(records: &[&JsonValue]) -> Option<JsonPath> {
    let first = records.first()?;
    let keys: Vec<&str> = first.entries().iter().map(|(key, _)| key.as_str()).collect();
    let usual = ID_NAMES.iter().filter_map(|name| keys.iter().find(|key| key.eq_ignore_ascii_case(name)));
    let with_id = keys.iter().filter(|key| key.to_ascii_lowercase().ends_with("id"));
    let candidates: Vec<&str> = usual.chain(with_id).chain(keys.first()).copied().collect();
    candidates.into_iter().find(|key| is_unique(records, key)).map(JsonPath::key)
}

fn is_unique(records: &[&JsonValue], key: &str) -> bool {
    let mut seen = HashSet::new();
    records.iter().all(|record| {
        let id = record.get(key).and_then(JsonValue::scalar).filter(|id| !id.is_empty());
        id.is_some_and(|id| seen.insert(id))
    })
}

fn find_time(records: &[&JsonValue]) -> Option<JsonPath> {
    let first = records.first()?;
    let is_time = |key: &str| {
        let text = |record: &&JsonValue| record.get(key).and_then(JsonValue::scalar).map(str::to_owned);
        records.iter().all(|record| text(record).is_some_and(|text| timestamp(&text, None).is_some()))
    };
    let keys = || first.entries().iter().map(|(key, _)| key.as_str());
    let mut usual = TIME_NAMES.iter().filter_map(|name| keys().find(|key| key.eq_ignore_ascii_case(name)));
    usual.find(|key| is_time(key)).map(JsonPath::key)
}
