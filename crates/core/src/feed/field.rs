//! Formats the partition field and the incremental cursor of a feed for messages: names, units and values.

use super::{Feed, FieldRange, FieldValue, REST_KIND};
use crate::Timestamp;
use crate::diamond::ALL_PRICES;
use crate::feed_definition::number::unscaled;
use crate::feed_definition::paging::{CursorKind, RangeKind, RangeSpec, TimeFormat};
use crate::feed_definition::{ParamTarget, Partition, cast};

/// The field by which the syncs of a feed are divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionField {
    /// Path of the field in a record, or the parameter that filters it.
    pub name: String,
    pub unit: FieldUnit,
    /// Range of all values. A partition that reaches one of its ends has no bound there.
    pub all: FieldRange,
}

/// Unit of the values of a partition field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldUnit {
    /// Cents of a price in dollars.
    Dollars,
    /// The smallest unit of a currency, which has this number of decimals.
    Money {
        decimals: u32,
    },
    Number,
    /// Seconds since the year 1970.
    Time,
    /// The values of the partitions. A value of the field is an index.
    Values(Vec<String>),
    /// The list is not divided.
    Whole,
}

/// The value that grows with each change of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorUnit {
    Time,
    /// Watermarks hold the number as microseconds since the year 1970.
    Number,
}

impl CursorUnit {
    /// Returns the number that a watermark holds; `None` if it holds a time.
    pub const fn number(self, watermark: Timestamp) -> Option<i64> {
        match self {
            Self::Time => None,
            Self::Number => Some(watermark.timestamp_micros()),
        }
    }
}

const SECS_PER_DAY: i64 = 86_400;

impl Feed {
    /// Returns the field by which the syncs of the feed are divided.
    pub fn partition_field(&self) -> PartitionField {
        if self.kind != REST_KIND {
            return PartitionField { name: "price".to_owned(), unit: FieldUnit::Dollars, all: ALL_PRICES };
        }
        match self.definition() {
            Some(Ok(definition)) => PartitionField::of(&definition.partition),
            // A definition that cannot be read is an error of the sync; its ranges are shown as they are stored.
            Some(Err(_)) | None => PartitionField {
                name: "range".to_owned(),
                unit: FieldUnit::Number,
                all: FieldRange { from: FieldValue::MIN, to: FieldValue::MAX },
            },
        }
    }
}

impl Feed {
    /// Returns the unit of the feed's watermark.
    pub fn cursor_unit(&self) -> CursorUnit {
        let incremental =
            self.definition().and_then(Result::ok).and_then(|definition| definition.incremental);
        match incremental.map(|incremental| incremental.kind) {
            Some(CursorKind::Number { .. }) => CursorUnit::Number,
            Some(CursorKind::Time { .. }) | None => CursorUnit::Time,
        }
    }
}

impl PartitionField {
    /// Returns the field of a definition.
    pub fn of(partition: &Partition) -> Self {
        match partition {
            Partition::Heatmap { range, .. } | Partition::TimeWindows { range, .. } => Self::of_range(range),
            Partition::Values { param, values } => Self {
                name: param_name(param),
                unit: FieldUnit::Values(values.clone()),
                all: FieldRange {
                    from: 0,
                    to: FieldValue::try_from(values.len()).unwrap_or(FieldValue::MAX),
                },
            },
            Partition::None => {
                Self { name: "list".to_owned(), unit: FieldUnit::Whole, all: FieldRange { from: 0, to: 1 } }
            }
        }
    }

    fn of_range(spec: &RangeSpec) -> Self {
        let unit = match spec.kind {
            RangeKind::Money { decimals } => FieldUnit::Money { decimals },
            RangeKind::Number => FieldUnit::Number,
            RangeKind::Time { .. } => FieldUnit::Time,
        };
        Self {
            name: spec.field.as_ref().map_or_else(|| param_name(&spec.from), ToString::to_string),
            unit,
            all: FieldRange { from: spec.min, to: spec.max.unwrap_or(FieldValue::MAX) },
        }
    }

    /// Returns a range with the name of the field: `price 100.00 to 250.00`, `region = eu`, `whole list`.
    pub fn label(&self, range: FieldRange) -> String {
        let values = self.values(range);
        match self.unit {
            FieldUnit::Values(_) => format!("{} = {values}", self.name),
            FieldUnit::Whole => format!("{values} {}", self.name),
            FieldUnit::Dollars | FieldUnit::Money { .. } | FieldUnit::Number | FieldUnit::Time => {
                if self.has_all(range) {
                    format!("{values} {}", self.name)
                } else {
                    format!("{} {values}", self.name)
                }
            }
        }
    }

    /// Returns a range without the name of the field: `100.00 to 250.00`, `eu`, `whole`.
    pub fn values(&self, range: FieldRange) -> String {
        match &self.unit {
            FieldUnit::Whole => "whole".to_owned(),
            FieldUnit::Values(values) => self.names(values, range),
            FieldUnit::Dollars | FieldUnit::Money { .. } | FieldUnit::Number | FieldUnit::Time => {
                let (below, and_more) = if self.unit == FieldUnit::Time {
                    ("before", "and later")
                } else {
                    ("below", "and more")
                };
                match (range.from <= self.all.from, range.to >= self.all.to) {
                    (true, true) => "any".to_owned(),
                    (true, false) => format!("{below} {}", self.value(range.to)),
                    (false, true) => format!("{} {and_more}", self.value(range.from)),
                    (false, false) => format!("{} to {}", self.value(range.from), self.value(range.to)),
                }
            }
        }
    }

    fn has_all(&self, range: FieldRange) -> bool {
        range.from <= self.all.from && range.to >= self.all.to
    }

    fn names(&self, values: &[String], range: FieldRange) -> String {
        let known = range.from.max(0)..range.to.min(self.all.to);
        let names: Vec<&str> =
            known.filter_map(|index| values.get(usize::try_from(index).ok()?).map(String::as_str)).collect();
        // A definition with fewer values was applied since the partition was planned.
        if names.is_empty() { format!("value {}", range.from) } else { names.join(", ") }
    }

    /// Returns one value of the field.
    pub fn value(&self, value: FieldValue) -> String {
        match &self.unit {
            FieldUnit::Dollars => dollars(value),
            FieldUnit::Money { decimals } => unscaled(value, *decimals),
            FieldUnit::Number => value.to_string(),
            FieldUnit::Time => time(value),
            FieldUnit::Values(values) => {
                let name = usize::try_from(value).ok().and_then(|index| values.get(index));
                name.cloned().unwrap_or_else(|| format!("value {value}"))
            }
            FieldUnit::Whole => "whole list".to_owned(),
        }
    }

    /// Describes the partitions of the feed.
    pub fn description(&self) -> String {
        match self.unit {
            FieldUnit::Values(_) => format!("one for each value of {}", self.name),
            FieldUnit::Whole => "one for the whole list".to_owned(),
            FieldUnit::Dollars | FieldUnit::Money { .. } | FieldUnit::Number | FieldUnit::Time => {
                format!("ranges of {}", self.name)
            }
        }
    }
}

fn param_name(param: &ParamTarget) -> String {
    match param {
        ParamTarget::Query(name) => name.clone(),
        ParamTarget::Body(path) => path.to_string(),
    }
}

/// Formats cents as dollars with separated thousands, without decimals if they are zero.
pub fn dollars(cents: FieldValue) -> String {
    let (sign, cents) = (if cents < 0 { "-" } else { "" }, cents.unsigned_abs());
    let digits = (cents / 100).to_string();
    let mut whole = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            whole.push(',');
        }
        whole.push(digit);
    }
    match cents % 100 {
        0 => format!("{sign}${whole}"),
        rest => format!("{sign}${whole}.{rest:02}"),
    }
}

/// Formats a time; midnight as a day.
fn time(secs: i64) -> String {
    let Some(time) = Timestamp::from_timestamp(secs, 0) else { return secs.to_string() };
    let format = if secs % SECS_PER_DAY == 0 { TimeFormat::Date } else { TimeFormat::Rfc3339 };
    cast::write_time(time, format)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diamond::PRICE_CEILING;
    use crate::feed_definition::parse;

    fn field(partition: &str) -> PartitionField {
        let text = format!(
            "version: 1\nfeed: orders\nclient: {{base_url: 'https://api.test'}}\n\
             resource: {{path: /orders, primary_key: id, data_selector: items}}\n\
             paginator: {{type: offset, offset_param: offset, limit_param: limit, limit: 100}}\n\
             {partition}\ninto: {{table: public.orders}}\n"
        );
        PartitionField::of(&parse(&text).unwrap().partition)
    }

    fn texts(field: &PartitionField, ranges: &[(i64, i64)]) -> Vec<String> {
        ranges.iter().map(|&(from, to)| field.label(FieldRange { from, to })).collect()
    }

    #[test]
    fn price_ranges_of_nivoda_are_in_dollars() {
        let price = PartitionField { name: "price".to_owned(), unit: FieldUnit::Dollars, all: ALL_PRICES };
        assert_eq!(
            texts(&price, &[(0, PRICE_CEILING), (0, 50_000), (50_000, 123_456), (123_400, PRICE_CEILING)]),
            ["any price", "price below $500", "price $500 to $1,234.56", "price $1,234 and more"]
        );
        assert_eq!([dollars(123_456_789), dollars(0), dollars(-5)], ["$1,234,567.89", "$0", "-$0.05"]);
        assert_eq!(price.description(), "ranges of price");
    }

    #[test]
    fn ranges_are_in_the_words_of_the_definition() {
        let money = field(
            "partition: {type: heatmap, field: price, kind: money, from: 0, to: 1000, from_param: min, to_param: max, \
             count: {total_path: total}}",
        );
        assert_eq!(
            texts(&money, &[(10_000, 25_000), (0, 25_000), (25_000, 100_000), (0, 100_000)]),
            ["price 100.00 to 250.00", "price below 250.00", "price 250.00 and more", "any price"]
        );
        let windows = field(
            "partition: {type: time_windows, field: created_at, from: 2026-01-01, window: 30d, from_param: since, \
             to_param: until}",
        );
        let day = |text: &str| cast::timestamp(text, None).unwrap().timestamp();
        let (january, february) = (day("2026-01-01"), day("2026-02-01"));
        assert_eq!(
            texts(&windows, &[(january, february), (february, february + 3_600), (february, i64::MAX)]),
            [
                "created_at before 2026-02-01",
                "created_at 2026-02-01 to 2026-02-01T01:00:00Z",
                "created_at 2026-02-01 and later",
            ]
        );
    }

    #[test]
    fn values_and_whole_lists_have_no_ranges() {
        let regions = field("partition: {type: values, param: region, values: [eu, us]}");
        assert_eq!(
            texts(&regions, &[(0, 1), (1, 2), (0, 2), (7, 8)]),
            ["region = eu", "region = us", "region = eu, us", "region = value 7"]
        );
        assert_eq!((regions.value(1), regions.value(-1)), ("us".to_owned(), "value -1".to_owned()));
        let whole = field("");
        assert_eq!(texts(&whole, &[(0, 1)]), ["whole list"]);
    }
}
