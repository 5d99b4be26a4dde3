//! Parses the section `partition`.

use super::request::{header_name, request};
use super::rules::FORMATS;
use super::{required_param, tag, value_path};
use crate::definition::error::{DefinitionErrors, shown};
use crate::definition::fields::Fields;
use crate::feed_definition::cast::timestamp;
use crate::feed_definition::number::scaled;
use crate::feed_definition::paging::{Bound, CountSpec, Partition, RangeKind, RangeSpec, TotalLocation};
use crate::graph::units;
use crate::limits::{FEED_PARAM_BYTES_MAX, FEED_VALUES_MAX, GRAPH_DAYS_MAX};

pub(in super::super) const TYPES: [(&str, &[&str]); 4] = [
    ("none", &[]),
    (
        "heatmap",
        &[
            "field",
            "kind",
            "decimals",
            "format",
            "from",
            "to",
            "granularity",
            "from_param",
            "from_body_path",
            "to_param",
            "to_body_path",
            "to_bound",
            "count",
        ],
    ),
    (
        "time_windows",
        &[
            "field",
            "format",
            "from",
            "to",
            "granularity",
            "from_param",
            "from_body_path",
            "to_param",
            "to_body_path",
            "to_bound",
            "window",
        ],
    ),
    ("values", &["param", "body_path", "values"]),
];

pub(in super::super) const COUNT_KEYS: [&str; 7] =
    ["total_path", "header", "path", "method", "params", "json", "graphql"];

/// Largest number of decimals of money.
const DECIMALS_MAX: u64 = 6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Money,
    Number,
    Time,
}

const KINDS: [(&str, Kind); 3] = [("money", Kind::Money), ("number", Kind::Number), ("time", Kind::Time)];
const BOUNDS: [(&str, Bound); 2] = [("exclusive", Bound::Exclusive), ("inclusive", Bound::Inclusive)];

pub(super) fn read(fields: &Fields, errors: &mut DefinitionErrors) -> Option<Partition> {
    if !fields.has("partition") {
        return Some(Partition::None);
    }
    let fields = fields.child("partition", errors)?;
    match tag(&fields, "`partition`", &TYPES, errors)? {
        "heatmap" => {
            fields.require("kind", "write `kind: money`, `number` or `time`", errors);
            fields.require(
                "count",
                "write `count:` and below it `total_path`, `header` or a count request",
                errors,
            );
            let kind = fields.word("kind", &KINDS, errors);
            let range = kind.and_then(|kind| range(&fields, kind, errors));
            let count = fields.child("count", errors).and_then(|fields| count(&fields, errors));
            Some(Partition::Heatmap { range: range?, count: count? })
        }
        "time_windows" => {
            fields.require("window", "write `window: 30d`", errors);
            let window_secs = fields.secs("window", 60, GRAPH_DAYS_MAX * 86_400, errors);
            let range = range(&fields, Kind::Time, errors);
            Some(Partition::TimeWindows { range: range?, window_secs: window_secs? })
        }
        "values" => {
            fields.require("values", "write `values: [one, two]`", errors);
            let param = required_param(&fields, "", errors);
            let values = fields.texts("values", FEED_VALUES_MAX, FEED_PARAM_BYTES_MAX, errors);
            if let Some(values) = &values {
                let mut seen = std::collections::HashSet::new();
                if let Some(twice) = values.iter().find(|value| !seen.insert(value.as_str())) {
                    let message = format!("`values` contains `{}` twice", shown(twice));
                    errors.hint(fields.at("values"), message, "remove one of them");
                }
            }
            Some(Partition::Values { param: param?, values: values? })
        }
        _ => Some(Partition::None),
    }
}

fn range(fields: &Fields, kind: Kind, errors: &mut DefinitionErrors) -> Option<RangeSpec> {
    let decimals = fields.number("decimals", 0, DECIMALS_MAX, errors).unwrap_or(2);
    let format = fields.word("format", &FORMATS, errors).unwrap_or_default();
    for (key, owner) in [("decimals", Kind::Money), ("format", Kind::Time)] {
        if fields.has(key) && kind != owner {
            let owner = if owner == Kind::Money { "money" } else { "time" };
            errors.hint(fields.at(key), format!("`{key}` belongs to the kind `{owner}`"), "remove it");
        }
    }
    let kind = match kind {
        Kind::Money => RangeKind::Money { decimals: decimals.try_into().ok()? },
        Kind::Number => RangeKind::Number,
        Kind::Time => RangeKind::Time { format },
    };
    fields.require("from", "write `from:` with the lowest usual value", errors);
    if !matches!(kind, RangeKind::Time { .. }) {
        fields.require("to", "write `to:` with the highest usual value", errors);
    }
    let min = boundary(fields, "from", kind, errors);
    let max = boundary(fields, "to", kind, errors);
    let granularity = granularity(fields, kind, errors);
    let from = required_param(fields, "from", errors);
    let to = required_param(fields, "to", errors);
    let field = value_path(fields, "field", errors);
    if let (Some(min), Some(max), Some(granularity)) = (min, max, granularity) {
        if min >= max {
            errors.hint(fields.at("to"), "`to` must be greater than `from`", "swap them");
        } else if (max - min) % granularity != 0 {
            let message = "the distance from `from` to `to` is not a multiple of `granularity`";
            errors.hint(fields.at("granularity"), message, "choose round boundaries");
        }
    }
    Some(RangeSpec {
        field,
        kind,
        from: from?,
        to: to?,
        to_bound: fields.word("to_bound", &BOUNDS, errors).unwrap_or_default(),
        min: min?,
        max,
        granularity: granularity?,
    })
}

/// Reads a boundary in the unit of its kind.
fn boundary(fields: &Fields, key: &str, kind: RangeKind, errors: &mut DefinitionErrors) -> Option<i64> {
    let text = fields.text(key, 64, errors)?;
    let (value, hint) = match kind {
        RangeKind::Money { decimals } => (scaled(&text, decimals), "write a number such as 0 or 99.50"),
        RangeKind::Number => (scaled(&text, 0), "write a whole number"),
        RangeKind::Time { .. } => {
            (timestamp(&text, None).map(|time| time.timestamp()), "write a time such as 2020-01-01")
        }
    };
    // The range must stay far from the limits of 64 bits, so that differences do not overflow.
    let value = value.filter(|value| value.unsigned_abs() < 1 << 60);
    if value.is_none() {
        errors.hint(
            fields.at(key),
            format!("`{key}` is `{}`, which is not a boundary of this kind", shown(&text)),
            hint,
        );
    }
    value
}

fn granularity(fields: &Fields, kind: RangeKind, errors: &mut DefinitionErrors) -> Option<i64> {
    let Some(node) = fields.node("granularity") else { return Some(1) };
    let at = node.at;
    let text = fields.text("granularity", 64, errors)?;
    let (value, hint) = match kind {
        RangeKind::Money { decimals } => (scaled(&text, decimals), "write a number such as 0.01 or 1"),
        RangeKind::Number => (scaled(&text, 0), "write a whole number such as 1"),
        RangeKind::Time { .. } => {
            (units::secs(&text).ok().map(i64::from), "write a duration such as 1s or 1d")
        }
    };
    let value = value.filter(|value| (1..1 << 40).contains(value));
    if value.is_none() {
        errors.hint(at, format!("`granularity` is `{}`; it must be positive", shown(&text)), hint);
    }
    value
}

fn count(fields: &Fields, errors: &mut DefinitionErrors) -> Option<CountSpec> {
    fields.check(&COUNT_KEYS, errors);
    let total = total(fields, "header", errors);
    if !fields.has("total_path") && !fields.has("header") {
        fields.require("total_path", "write `total_path: meta.total` or `header: X-Total-Count`", errors);
    }
    let has_request = COUNT_KEYS[2..].iter().any(|key| fields.has(key));
    if has_request {
        fields.require("path", "write `path:` of the count request", errors);
    }
    let request = if has_request { Some(request(fields, errors)?) } else { None };
    Some(CountSpec { total: total?, request })
}

/// Reads `total_path` or a header.
pub(super) fn total(fields: &Fields, header: &str, errors: &mut DefinitionErrors) -> Option<TotalLocation> {
    if fields.has("total_path") && fields.has(header) {
        let message = format!("`total_path` and `{header}` exclude each other");
        errors.hint(fields.at(header), message, "remove one of them");
        return None;
    }
    if fields.has(header) {
        return header_name(fields, header, errors).map(TotalLocation::Header);
    }
    // A count may be the whole answer.
    super::path(fields, "total_path", errors).map(TotalLocation::Path)
}
