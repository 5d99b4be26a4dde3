//! Inference of columns from sample records: the narrowest type that holds all values.

use super::cast::timestamp;
use super::number::plain_integer;
use super::path::JsonPath;
use super::target::{Column, ColumnSource, ColumnType};
use super::value::JsonValue;
use crate::limits::{FEED_COLUMNS_MAX, IDENTIFIER_BYTES_MAX, INFERENCE_RECORDS_MAX};
use std::collections::{HashMap, HashSet};

/// The type of one value, or of several values together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Boolean,
    Integer,
    Decimal,
    Date,
    Timestamp,
    Text,
    Json,
}

impl Shape {
    fn of(value: &JsonValue) -> Option<Self> {
        Some(match value {
            JsonValue::Null => return None,
            JsonValue::Bool(_) => Self::Boolean,
            JsonValue::Number(digits) if plain_integer(digits).is_some() && !digits.contains('.') => {
                Self::Integer
            }
            JsonValue::Number(_) => Self::Decimal,
            JsonValue::Text(text) if timestamp(text, None).is_some() => {
                if text.len() == 10 {
                    Self::Date
                } else {
                    Self::Timestamp
                }
            }
            JsonValue::Text(_) | JsonValue::Unstorable(_) => Self::Text,
            JsonValue::List(_) | JsonValue::Object(_) => Self::Json,
        })
    }

    /// Returns the narrowest type that holds both.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (one, two) if one == two => one,
            (Self::Integer, Self::Decimal) | (Self::Decimal, Self::Integer) => Self::Decimal,
            (Self::Date, Self::Timestamp) | (Self::Timestamp, Self::Date) => Self::Timestamp,
            // A text column cannot hold lists and objects, but a JSON column holds everything.
            (Self::Json, _) | (_, Self::Json) => Self::Json,
            (
                Self::Boolean | Self::Integer | Self::Decimal | Self::Date | Self::Timestamp | Self::Text,
                _,
            ) => Self::Text,
        }
    }

    const fn column_type(self) -> ColumnType {
        match self {
            Self::Boolean => ColumnType::Boolean,
            Self::Integer => ColumnType::Integer,
            Self::Decimal => ColumnType::Decimal,
            Self::Date => ColumnType::Date,
            Self::Timestamp => ColumnType::Timestamp,
            Self::Text => ColumnType::Text,
            Self::Json => ColumnType::Json,
        }
    }
}

#[derive(Default)]
struct Observation {
    shape: Option<Shape>,
    /// Records that have a value other than null.
    values: usize,
}

/// Infers one column for each top-level key of the records, in the order of their first occurrence.
///
/// A column is nullable if a record has no value for it. A key that is always null becomes a nullable text.
pub fn infer_columns<'a>(records: impl IntoIterator<Item = &'a JsonValue>) -> Vec<Column> {
    let mut order: Vec<&str> = Vec::new();
    let mut observed: HashMap<&str, Observation> = HashMap::new();
    let mut count = 0;
    for record in records.into_iter().take(INFERENCE_RECORDS_MAX) {
        count += 1;
        for (key, value) in record.entries() {
            if !observed.contains_key(key.as_str()) {
                if order.len() == FEED_COLUMNS_MAX || key.is_empty() {
                    continue;
                }
                order.push(key);
            }
            let seen = observed.entry(key).or_default();
            if let Some(shape) = Shape::of(value) {
                seen.shape = Some(seen.shape.map_or(shape, |other| other.join(shape)));
                seen.values += 1;
            }
        }
    }
    let mut names = HashSet::new();
    let columns = order.into_iter().map(|key| {
        let seen = observed.get(key);
        let shape = seen.and_then(|seen| seen.shape).unwrap_or(Shape::Text);
        Column {
            name: unique_name(column_name(key), &mut names),
            source: ColumnSource::Path(JsonPath::key(key)),
            column_type: shape.column_type(),
            format: None,
            default: None,
            nullable: seen.is_none_or(|seen| seen.values < count),
        }
    });
    columns.collect()
}

/// Adds the inferred columns whose field has none to the known columns, which stay as they are.
pub fn add_columns(known: &[Column], inferred: Vec<Column>) -> Vec<Column> {
    let mut columns = known.to_vec();
    let mut names: HashSet<String> = known.iter().map(|column| column.name.clone()).collect();
    for mut column in inferred {
        if columns.len() < FEED_COLUMNS_MAX && !known.iter().any(|known| known.source == column.source) {
            column.name = unique_name(column.name, &mut names);
            column.nullable |= !known.is_empty();
            columns.push(column);
        }
    }
    columns
}

/// Converts a key such as `createdAt` to the name of a column: `created_at`.
pub fn column_name(key: &str) -> String {
    let mut name = String::new();
    let mut before = '_';
    for symbol in key.chars() {
        if symbol.is_ascii_alphanumeric() {
            if symbol.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
                name.push('_');
            }
            name.push(symbol.to_ascii_lowercase());
        } else if !name.ends_with('_') {
            name.push('_');
        }
        before = symbol;
    }
    let mut name = name.trim_matches('_').to_owned();
    if name.is_empty() || name.starts_with(|symbol: char| symbol.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name.truncate(IDENTIFIER_BYTES_MAX);
    name
}

fn unique_name(name: String, names: &mut HashSet<String>) -> String {
    if names.insert(name.clone()) {
        return name;
    }
    let numbered = (2..).map(|number| {
        let suffix = format!("_{number}");
        let mut short = name.clone();
        short.truncate(IDENTIFIER_BYTES_MAX - suffix.len());
        short + &suffix
    });
    let mut free = numbered.filter(|name| !names.contains(name));
    let name = free.next().unwrap_or_default();
    names.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infer(texts: &[&str]) -> Vec<(String, ColumnType, bool)> {
        let records: Vec<JsonValue> =
            texts.iter().map(|text| JsonValue::parse(text.as_bytes(), 64).unwrap()).collect();
        infer_columns(&records)
            .into_iter()
            .map(|column| (column.name, column.column_type, column.nullable))
            .collect()
    }

    #[test]
    fn narrowest_type_that_holds_all_values_is_inferred() {
        use ColumnType as T;
        for (first, second, expected) in [
            ("1", "2", T::Integer),
            ("1", "123456789012345678901234567890", T::Integer),
            ("1", "2.5", T::Decimal),
            ("1.0", "2.0", T::Decimal),
            ("true", "false", T::Boolean),
            ("true", "1", T::Text),
            ("1", "\"x\"", T::Text),
            ("\"2026-01-01\"", "\"2026-01-02\"", T::Date),
            ("\"2026-01-01\"", "\"2026-01-02T00:00:00Z\"", T::Timestamp),
            ("\"2026-01-01\"", "\"soon\"", T::Text),
            ("{}", "[]", T::Json),
            ("{}", "1", T::Json),
        ] {
            let found = infer(&[&format!("{{\"x\":{first}}}"), &format!("{{\"x\":{second}}}")]);
            assert_eq!(found, [("x".to_owned(), expected, false)], "{first} {second}");
        }
    }

    #[test]
    fn absent_and_null_values_make_a_column_nullable() {
        let found = infer(&[r#"{"a":1,"b":null,"c":1}"#, r#"{"a":2,"b":null}"#]);
        let nullable: Vec<_> =
            found.iter().map(|(name, kind, nullable)| (name.as_str(), *kind, *nullable)).collect();
        assert_eq!(
            nullable,
            [
                ("a", ColumnType::Integer, false),
                ("b", ColumnType::Text, true),
                ("c", ColumnType::Integer, true)
            ]
        );
    }

    #[test]
    fn columns_of_new_fields_are_added_to_the_known_ones() {
        let columns = |text: &str| infer_columns(&[JsonValue::parse(text.as_bytes(), 8).unwrap()]);
        let known = columns(r#"{"id":1,"aB":1,"rare":true}"#);
        let grown = add_columns(&known, columns(r#"{"a_b":"x","id":"now a text","new":2}"#));
        assert_eq!(grown[..3], known);
        let added: Vec<_> = grown[3..]
            .iter()
            .map(|column| (column.name.as_str(), column.column_type, column.nullable))
            .collect();
        assert_eq!(added, [("a_b_2", ColumnType::Text, true), ("new", ColumnType::Integer, true)]);
        assert_eq!(add_columns(&[], known.clone()), known);
    }

    #[test]
    fn keys_become_unique_column_names() {
        for (key, name) in [
            ("createdAt", "created_at"),
            ("HTTPStatus", "httpstatus"),
            ("first name!", "first_name"),
            ("1st", "_1st"),
            ("Größe", "gr_e"),
            ("é", "_"),
        ] {
            assert_eq!(column_name(key), name, "{key}");
        }
        let found = infer(&[r#"{"aB":1,"a_b":2,"a-b":3}"#]);
        let names: Vec<_> = found.into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["a_b", "a_b_2", "a_b_3"]);
        assert_eq!(column_name(&"x".repeat(100)).len(), IDENTIFIER_BYTES_MAX);
    }
}
