//! Parses the sections `incremental`, `trust` and `deletes`.

use super::partition::total;
use super::request::path_with_id;
use super::{required_param, value_path};
use crate::definition::error::{DefinitionErrors, shown};
use crate::definition::fields::Fields;
use crate::feed_definition::cast::{timestamp, write_time};
use crate::feed_definition::number::scaled;
use crate::feed_definition::paging::{
    CursorKind, DeleteFlag, Deletes, EndRule, Incremental, Lookup, PageAccess, Paginator, TimeFormat, Trust,
};
use crate::limits::{FEED_LOOKUP_IDS_MAX, FEED_PARAM_BYTES_MAX, GRAPH_DAYS_MAX, OVERLAP_SECS};

pub(in super::super) const INCREMENTAL_KEYS: [&str; 7] =
    ["cursor_path", "start_param", "start_body_path", "kind", "format", "overlap", "initial_value"];
pub(in super::super) const TRUST_KEYS: [&str; 7] =
    ["end", "has_more_path", "total_path", "total_header", "recount", "repeats", "complete"];
pub(in super::super) const DELETE_KEYS: [&str; 4] = ["lookup", "flag", "absence", "threshold"];
pub(in super::super) const LOOKUP_KEYS: [&str; 6] =
    ["param", "body_path", "separator", "ids_max", "path", "gone_status"];
pub(in super::super) const FLAG_KEYS: [&str; 2] = ["path", "equals"];

pub(super) const FORMATS: [(&str, TimeFormat); 4] = [
    ("rfc3339", TimeFormat::Rfc3339),
    ("date", TimeFormat::Date),
    ("unix", TimeFormat::Unix),
    ("unix_ms", TimeFormat::UnixMs),
];

/// Ids in one lookup request, unless the definition says otherwise.
const LOOKUP_IDS: u32 = 50;
/// Default of `threshold`, in thousandths of the records.
const THRESHOLD_PERMILLE: u32 = 200;

pub(super) fn incremental(fields: &Fields, errors: &mut DefinitionErrors) -> Option<Incremental> {
    fields.check(&INCREMENTAL_KEYS, errors);
    fields.require("cursor_path", "write `cursor_path: updated_at`, its path in a record", errors);
    let cursor_path = value_path(fields, "cursor_path", errors);
    let start = required_param(fields, "start", errors);
    let is_number = fields.word("kind", &[("time", false), ("number", true)], errors).unwrap_or(false);
    let kind = if is_number {
        if fields.has("format") {
            errors.hint(fields.at("format"), "`format` belongs to the kind `time`", "remove it");
        }
        CursorKind::Number { overlap: fields.number("overlap", 0, 1 << 40, errors).unwrap_or(0) }
    } else {
        let overlap = fields.secs("overlap", 0, GRAPH_DAYS_MAX * 86_400, errors);
        let default = u32::try_from(OVERLAP_SECS).unwrap_or(u32::MAX);
        let format = fields.word("format", &FORMATS, errors).unwrap_or_default();
        CursorKind::Time { format, overlap_secs: overlap.unwrap_or(default) }
    };
    let initial_value = initial_value(fields, kind, errors);
    Some(Incremental { cursor_path: cursor_path?, start: start?, kind, initial_value })
}

/// Reads the start value, and writes it as the source expects it.
fn initial_value(fields: &Fields, kind: CursorKind, errors: &mut DefinitionErrors) -> Option<String> {
    let text = fields.text("initial_value", FEED_PARAM_BYTES_MAX, errors)?;
    let (found, message, hint) = match kind {
        CursorKind::Number { .. } => {
            (text.parse::<i64>().ok().map(|number| number.to_string()), "a whole number", "write `0`")
        }
        CursorKind::Time { format, .. } => {
            let time = timestamp(&text, Some(format)).or_else(|| timestamp(&text, None));
            (
                time.map(|time| write_time(time, format)),
                "a time",
                "write `2026-01-31` or `2026-01-31T12:00:00Z`",
            )
        }
    };
    if found.is_none() {
        let at = fields.at("initial_value");
        errors.hint(at, format!("the `initial_value` `{}` is not {message}", shown(&text)), hint);
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    EmptyPage,
    ShortPage,
    HasMore,
    Total,
    NoNext,
}

const ENDS: [(&str, End); 5] = [
    ("empty_page", End::EmptyPage),
    ("short_page", End::ShortPage),
    ("has_more", End::HasMore),
    ("total", End::Total),
    ("no_next", End::NoNext),
];

/// Reads the section `trust`. Without `end`, the rule follows from the other keys and the paginator.
pub(super) fn trust(
    fields: &Fields,
    paginator: Option<&Paginator>,
    errors: &mut DefinitionErrors,
) -> Option<Trust> {
    let has_tokens = paginator.is_some_and(|paginator| {
        let has_key = matches!(paginator, Paginator::Keyset { .. } | Paginator::Offset { .. });
        paginator.access() == PageAccess::Sequential && !has_key
    });
    let default = if has_tokens { EndRule::NoNext } else { EndRule::EmptyPage };
    if !fields.has("trust") {
        return Some(Trust { end: default, total: None, recount: true, repeats: true, complete: false });
    }
    let fields = fields.child("trust", errors)?;
    fields.check(&TRUST_KEYS, errors);
    let total = total(&fields, "total_header", errors);
    let has_more = value_path(&fields, "has_more_path", errors);
    let end = match fields.word("end", &ENDS, errors) {
        None if fields.has("has_more_path") => has_more.map(EndRule::HasMore),
        None => Some(default),
        Some(End::EmptyPage) => Some(EndRule::EmptyPage),
        Some(End::ShortPage) => Some(EndRule::ShortPage),
        Some(End::NoNext) => Some(EndRule::NoNext),
        Some(End::HasMore) => {
            fields.require("has_more_path", "write `has_more_path: meta.has_more`", &mut *errors);
            has_more.map(EndRule::HasMore)
        }
        Some(End::Total) => {
            if !fields.has("total_path") && !fields.has("total_header") {
                fields.require(
                    "total_path",
                    "write `total_path: meta.total` or `total_header: X-Total-Count`",
                    errors,
                );
            }
            Some(EndRule::Total)
        }
    };
    let recount = fields.flag("recount", errors).unwrap_or(true);
    let repeats = fields.flag("repeats", errors).unwrap_or(true);
    let complete = fields.flag("complete", errors).unwrap_or(false);
    Some(Trust { end: end?, total, recount, repeats, complete })
}

pub(super) fn deletes(fields: &Fields, errors: &mut DefinitionErrors) -> Option<Deletes> {
    if !fields.has("deletes") {
        return Some(Deletes {
            lookup: None,
            flag: None,
            absence: true,
            threshold_permille: THRESHOLD_PERMILLE,
        });
    }
    let fields = fields.child("deletes", errors)?;
    fields.check(&DELETE_KEYS, errors);
    let lookup = if fields.has("lookup") {
        Some(fields.child("lookup", errors).and_then(|fields| lookup(&fields, errors))?)
    } else {
        None
    };
    let flag = if fields.has("flag") {
        let fields = fields.child("flag", errors)?;
        fields.check(&FLAG_KEYS, errors);
        fields.require("path", "write `path: deleted`, the path of the flag in a record", errors);
        let path = value_path(&fields, "path", errors)?;
        Some(DeleteFlag { path, equals: fields.text("equals", FEED_PARAM_BYTES_MAX, errors) })
    } else {
        None
    };
    let absence = fields.flag("absence", errors).unwrap_or(true);
    Some(Deletes { lookup, flag, absence, threshold_permille: threshold(&fields, errors) })
}

/// Reads `threshold`, a fraction between 0 and 1.
fn threshold(fields: &Fields, errors: &mut DefinitionErrors) -> u32 {
    let Some(text) = fields.text("threshold", 32, errors) else { return THRESHOLD_PERMILLE };
    let permille =
        scaled(&text, 3).and_then(|value| u32::try_from(value).ok()).filter(|value| *value <= 1_000);
    permille.unwrap_or_else(|| {
        let message = format!("`threshold` is `{}`; it must be a fraction between 0 and 1", shown(&text));
        errors.hint(fields.at("threshold"), message, "write it as 0.2, with at most 3 decimals");
        THRESHOLD_PERMILLE
    })
}

fn lookup(fields: &Fields, errors: &mut DefinitionErrors) -> Option<Lookup> {
    fields.check(&LOOKUP_KEYS, errors);
    if !fields.has("path") {
        let param = required_param(fields, "", errors);
        if fields.has("gone_status") {
            errors.hint(
                fields.at("gone_status"),
                "`gone_status` needs a `path`",
                "write `path: /ITEMS/{id}`",
            );
        }
        let ids_max = fields.number("ids_max", 1, FEED_LOOKUP_IDS_MAX.into(), errors);
        return Some(Lookup::Ids {
            param: param?,
            separator: fields.text("separator", 8, errors),
            ids_max: ids_max.and_then(|count| count.try_into().ok()).unwrap_or(LOOKUP_IDS),
        });
    }
    for key in ["param", "body_path", "separator", "ids_max"] {
        if fields.has(key) {
            errors.hint(
                fields.at(key),
                format!("`{key}` and `path` exclude each other"),
                "remove one of them",
            );
        }
    }
    let path = path_with_id(fields, "path", errors)?;
    if path.matches("{id}").count() != 1 {
        errors.hint(fields.at("path"), "`path` must contain `{id}` once", "write it as `/items/{id}`");
        return None;
    }
    let statuses = match fields.texts("gone_status", 16, 3, errors) {
        None => vec![404, 410],
        Some(texts) => {
            let statuses: Option<Vec<u16>> = texts.iter().map(|text| text.parse().ok()).collect();
            let statuses = statuses.filter(|list| list.iter().all(|status| (400..500).contains(status)));
            if statuses.is_none() {
                errors.hint(
                    fields.at("gone_status"),
                    "a gone status is between 400 and 499",
                    "write `[404, 410]`",
                );
            }
            statuses?
        }
    };
    if statuses.iter().any(|status| matches!(status, 401 | 403 | 408 | 429)) {
        let message = "401, 403, 408 and 429 do not mean that a record is gone";
        errors.hint(fields.at("gone_status"), message, "write `[404, 410]`");
    }
    Some(Lookup::GoneStatus { path, statuses })
}
