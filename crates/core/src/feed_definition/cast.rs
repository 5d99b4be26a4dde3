//! Casts of JSON values to the types of columns.

use super::number::{plain_decimal, plain_integer};
use super::paging::TimeFormat;
use super::target::ColumnType;
use super::value::{JsonValue, Unstorable};
use crate::Timestamp;
use chrono::{Datelike as _, NaiveDate, NaiveDateTime};

/// The typed value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnValue {
    Null,
    Text(String),
    /// An integer of any size as decimal digits.
    Integer(String),
    /// A decimal number of any size in plain notation.
    Decimal(String),
    Boolean(bool),
    Timestamp(Timestamp),
    Date(NaiveDate),
    /// A JSON text without spaces.
    Json(String),
}

/// Why a value cannot be cast to the type of its column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CastError {
    /// The value has another type.
    #[error("is {found}, not {wanted}")]
    Type { found: &'static str, wanted: &'static str },
    /// The value has a suitable type, but cannot be read.
    #[error("`{shown}` is not {wanted}")]
    Invalid { shown: String, wanted: &'static str },
    #[error("contains {0}, which databases cannot store")]
    Unstorable(Unstorable),
}

/// Length to which a value is cut in a message.
const SHOWN_CHARS: usize = 40;

impl CastError {
    fn invalid(text: &str, wanted: &'static str) -> Self {
        Self::Invalid { shown: text.chars().take(SHOWN_CHARS).collect(), wanted }
    }
}

/// Returns the name of a type in messages.
const fn noun(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Text => "a text",
        ColumnType::Integer => "an integer",
        ColumnType::Decimal => "a decimal number",
        ColumnType::Boolean => "a boolean",
        ColumnType::Timestamp => "a timestamp",
        ColumnType::Date => "a date",
        ColumnType::Json => "a JSON value",
    }
}

/// Casts a value. JSON null becomes NULL.
pub fn cast(
    value: &JsonValue,
    column_type: ColumnType,
    format: Option<TimeFormat>,
) -> Result<ColumnValue, CastError> {
    if value.is_null() {
        return Ok(ColumnValue::Null);
    }
    if let Some(reason) = value.unstorable() {
        return Err(CastError::Unstorable(reason));
    }
    let wanted = noun(column_type);
    if column_type == ColumnType::Json {
        return Ok(ColumnValue::Json(value.to_json()));
    }
    let text = match value {
        JsonValue::Text(text) | JsonValue::Number(text) => text.as_str(),
        JsonValue::Bool(true) => "true",
        JsonValue::Bool(false) => "false",
        JsonValue::Null | JsonValue::Unstorable(_) | JsonValue::List(_) | JsonValue::Object(_) => {
            return Err(CastError::Type { found: value.kind(), wanted });
        }
    };
    let invalid = || CastError::invalid(text, wanted);
    let is_bool = matches!(value, JsonValue::Bool(_));
    if is_bool && !matches!(column_type, ColumnType::Text | ColumnType::Boolean) {
        return Err(CastError::Type { found: value.kind(), wanted });
    }
    Ok(match column_type {
        ColumnType::Text => ColumnValue::Text(text.to_owned()),
        ColumnType::Integer => ColumnValue::Integer(plain_integer(text.trim()).ok_or_else(invalid)?),
        ColumnType::Decimal => ColumnValue::Decimal(plain_decimal(text.trim()).ok_or_else(invalid)?),
        ColumnType::Boolean => ColumnValue::Boolean(value.truth().ok_or_else(invalid)?),
        ColumnType::Timestamp => ColumnValue::Timestamp(timestamp(text.trim(), format).ok_or_else(invalid)?),
        ColumnType::Date => ColumnValue::Date(date(text.trim(), format).ok_or_else(invalid)?),
        ColumnType::Json => ColumnValue::Json(value.to_json()),
    })
}

/// Reads a time. Without a format, RFC 3339, `2026-01-31 12:00:00` and `2026-01-31` are accepted; times without a zone
/// are UTC.
pub fn timestamp(text: &str, format: Option<TimeFormat>) -> Option<Timestamp> {
    let time = match format {
        Some(TimeFormat::Unix) => unix(text, 1_000_000)?,
        Some(TimeFormat::UnixMs) => unix(text, 1_000)?,
        Some(TimeFormat::Rfc3339 | TimeFormat::Date) | None => calendar(text)?,
    };
    has_four_digit_year(time.date_naive()).then_some(time)
}

fn date(text: &str, format: Option<TimeFormat>) -> Option<NaiveDate> {
    let date = match format {
        Some(TimeFormat::Unix | TimeFormat::UnixMs) => timestamp(text, format)?.date_naive(),
        Some(TimeFormat::Rfc3339 | TimeFormat::Date) | None => {
            // The date as the source wrote it, in its own zone.
            calendar(text)?;
            NaiveDate::parse_from_str(text.get(..10)?, "%Y-%m-%d").ok()?
        }
    };
    has_four_digit_year(date).then_some(date)
}

fn has_four_digit_year(date: NaiveDate) -> bool {
    (1..=9999).contains(&date.year())
}

fn unix(text: &str, micros_per_unit: i64) -> Option<Timestamp> {
    let digits = plain_decimal(text)?;
    let decimals = if micros_per_unit == 1_000_000 { 6 } else { 3 };
    // Digits below a microsecond are cut.
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(decimals).collect();
    Timestamp::from_timestamp_micros(format!("{whole}{fraction}").parse().ok()?)
}

fn calendar(text: &str) -> Option<Timestamp> {
    // A year of more than four digits would shift the fields.
    if text.as_bytes().get(4) != Some(&b'-') {
        return None;
    }
    if let Ok(time) = chrono::DateTime::parse_from_rfc3339(text) {
        return Some(time.to_utc());
    }
    for pattern in ["%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z"] {
        if let Ok(time) = chrono::DateTime::parse_from_str(text, pattern) {
            return Some(time.to_utc());
        }
    }
    for pattern in ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"] {
        if let Ok(time) = NaiveDateTime::parse_from_str(text, pattern) {
            return Some(time.and_utc());
        }
    }
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    Some(date.and_hms_opt(0, 0, 0)?.and_utc())
}

/// Writes a time in a format. Fractions of a second are cut to milliseconds.
pub fn write_time(time: Timestamp, format: TimeFormat) -> String {
    match format {
        TimeFormat::Rfc3339 => time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true),
        TimeFormat::Date => time.format("%Y-%m-%d").to_string(),
        TimeFormat::Unix => time.timestamp().to_string(),
        TimeFormat::UnixMs => time.timestamp_millis().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> JsonValue {
        JsonValue::parse(text.as_bytes(), 64).unwrap()
    }

    fn shown(text: &str, column_type: ColumnType) -> String {
        match cast(&value(text), column_type, None) {
            Ok(ColumnValue::Null) => "NULL".to_owned(),
            Ok(
                ColumnValue::Text(text)
                | ColumnValue::Integer(text)
                | ColumnValue::Decimal(text)
                | ColumnValue::Json(text),
            ) => text,
            Ok(ColumnValue::Boolean(flag)) => flag.to_string(),
            Ok(ColumnValue::Timestamp(time)) => write_time(time, TimeFormat::Rfc3339),
            Ok(ColumnValue::Date(date)) => date.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn values_are_cast_to_the_type_of_the_column() {
        use ColumnType as T;
        for (text, column_type, expected) in [
            ("null", T::Integer, "NULL"),
            ("\"x\"", T::Text, "x"),
            ("1.50", T::Text, "1.50"),
            ("true", T::Text, "true"),
            ("{\"a\": [1]}", T::Json, "{\"a\":[1]}"),
            ("\" 42 \"", T::Integer, "42"),
            ("123456789012345678901234567890", T::Integer, "123456789012345678901234567890"),
            ("1.0", T::Integer, "1"),
            ("1e3", T::Decimal, "1000"),
            ("0.1", T::Decimal, "0.1"),
            ("\"false\"", T::Boolean, "false"),
            ("1", T::Boolean, "true"),
            ("\"2026-01-31T12:00:00+02:00\"", T::Timestamp, "2026-01-31T10:00:00Z"),
            ("\"2026-01-31 12:00:00.25\"", T::Timestamp, "2026-01-31T12:00:00.250Z"),
            ("\"2026-01-31 12:00:00+00\"", T::Timestamp, "2026-01-31T12:00:00Z"),
            ("\"2026-01-31\"", T::Timestamp, "2026-01-31T00:00:00Z"),
            ("\"2026-01-31T23:30:00-05:00\"", T::Date, "2026-01-31"),
        ] {
            assert_eq!(shown(text, column_type), expected, "{text} as {column_type}");
        }
    }

    #[test]
    fn unsuitable_values_are_typed_errors() {
        use ColumnType as T;
        for (text, column_type, expected) in [
            ("{}", T::Text, "is an object, not a text"),
            ("[1]", T::Integer, "is a list, not an integer"),
            ("1.5", T::Integer, "`1.5` is not an integer"),
            ("true", T::Integer, "is a boolean, not an integer"),
            ("\"abc\"", T::Decimal, "`abc` is not a decimal number"),
            ("\"yes\"", T::Boolean, "`yes` is not a boolean"),
            ("\"2026-02-30\"", T::Date, "`2026-02-30` is not a date"),
            ("\"2026-13-01T00:00:00Z\"", T::Timestamp, "`2026-13-01T00:00:00Z` is not a timestamp"),
            ("\"12026-01-01\"", T::Date, "`12026-01-01` is not a date"),
            ("\"0000-01-01\"", T::Date, "`0000-01-01` is not a date"),
            ("1700000000", T::Timestamp, "`1700000000` is not a timestamp"),
            ("\"a\\u0000b\"", T::Text, "contains a NUL character, which databases cannot store"),
            ("[\"\\ud800\"]", T::Json, "contains an unpaired surrogate, which databases cannot store"),
        ] {
            assert_eq!(shown(text, column_type), expected, "{text}");
        }
    }

    #[test]
    fn unix_times_need_a_format() {
        let at = |text: &str, format| {
            timestamp(text, Some(format)).map(|time| write_time(time, TimeFormat::Rfc3339))
        };
        assert_eq!(at("1700000000", TimeFormat::Unix).as_deref(), Some("2023-11-14T22:13:20Z"));
        assert_eq!(at("1700000000.5", TimeFormat::Unix).as_deref(), Some("2023-11-14T22:13:20.500Z"));
        assert_eq!(at("1700000000123", TimeFormat::UnixMs).as_deref(), Some("2023-11-14T22:13:20.123Z"));
        assert_eq!(at("99999999999999999999", TimeFormat::Unix), None);
        assert_eq!(at("999999999999999", TimeFormat::Unix), None);
    }

    #[test]
    fn written_time_is_read_again() {
        let time = timestamp("2026-01-31T12:00:00Z", None).unwrap();
        for format in [TimeFormat::Rfc3339, TimeFormat::Unix, TimeFormat::UnixMs] {
            assert_eq!(timestamp(&write_time(time, format), Some(format)), Some(time));
        }
        assert_eq!(write_time(time, TimeFormat::Date), "2026-01-31");
    }
}
