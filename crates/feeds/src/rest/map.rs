//! Maps records to columns.

use super::ANSWER_DEPTH_MAX;
use super::expression::{Evaluator, Expression, ExpressionError};
use tidemill_core::feed_definition::paging::DeleteFlag;
use tidemill_core::feed_definition::value::ParseError;
use tidemill_core::feed_definition::{
    Column, ColumnError, ColumnSource, ColumnValue, FeedDefinition, JsonValue, infer_columns,
};

/// The columns of one record. Columns with an error have no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedRow {
    /// Names and values of the columns, in the order of the definition.
    pub values: Vec<(String, ColumnValue)>,
    /// Columns that could not be mapped.
    pub errors: Vec<ColumnError>,
    /// Top-level keys that no column uses. New keys of the source are among them.
    pub unused_keys: Vec<String>,
    /// Columns whose path is absent from the record, and that get no value instead.
    pub absent: Vec<String>,
    /// Whether the record says that it is deleted.
    pub is_deleted: bool,
}

/// Maps records to the columns of a definition. Without columns, each top-level key becomes one.
#[derive(Debug)]
pub struct Mapper {
    columns: Vec<MappedColumn>,
    flag: Option<DeleteFlag>,
}

#[derive(Debug)]
struct MappedColumn {
    column: Column,
    expression: Option<Expression>,
    /// Value of a constant.
    constant: Option<ColumnValue>,
}

impl Mapper {
    /// Compiles the expressions of a definition. The result of an expression has at most `bytes_max` bytes.
    pub fn new(definition: &FeedDefinition, bytes_max: usize) -> Result<Self, ExpressionError> {
        let compile = |column: &Column| {
            let expression = match &column.source {
                ColumnSource::Cel(text) => Some(Expression::compile(text)?.with_bytes_max(bytes_max)),
                ColumnSource::Path(_) | ColumnSource::Constant(_) => None,
            };
            let constant = match &column.source {
                // The parser of definitions has checked constants.
                ColumnSource::Constant(value) => column.cast_literal(value).ok(),
                ColumnSource::Path(_) | ColumnSource::Cel(_) => None,
            };
            Ok(MappedColumn { column: column.clone(), expression, constant })
        };
        let columns = definition.into.columns.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Self { columns, flag: definition.deletes.flag.clone() })
    }

    /// Maps a record to the values of the columns.
    pub fn map(&self, payload: &str) -> Result<MappedRow, ParseError> {
        let record = JsonValue::parse(payload.as_bytes(), ANSWER_DEPTH_MAX)?;
        let is_deleted = self.flag.as_ref().is_some_and(|flag| super::page::is_flagged(&record, flag));
        if self.columns.is_empty() {
            return Ok(MappedRow { is_deleted, ..map_inferred(&record) });
        }
        let mut row = MappedRow {
            is_deleted,
            values: Vec::with_capacity(self.columns.len()),
            errors: Vec::new(),
            unused_keys: Vec::new(),
            absent: Vec::new(),
        };
        let mut evaluator = Evaluator::new(&record);
        for mapped in &self.columns {
            if mapped.is_absent(&record) {
                row.absent.push(mapped.column.name.clone());
            }
            match mapped.value(&record, &mut evaluator) {
                Ok(value) => row.values.push((mapped.column.name.clone(), value)),
                Err(error) => row.errors.push(error),
            }
        }
        row.unused_keys = self.unused_keys(&record);
        Ok(row)
    }

    fn unused_keys(&self, record: &JsonValue) -> Vec<String> {
        let is_used = |key: &str| {
            self.columns.iter().any(|mapped| match &mapped.column.source {
                ColumnSource::Path(path) => path.first_key().is_none_or(|first| first == key),
                // An expression may use any key that its text contains.
                ColumnSource::Cel(text) => text.contains(key),
                ColumnSource::Constant(_) => false,
            })
        };
        record.entries().iter().filter(|(key, _)| !is_used(key)).map(|(key, _)| key.clone()).collect()
    }
}

impl MappedColumn {
    /// Returns whether the record lacks the field of an optional column. A null is a value of the source.
    fn is_absent(&self, record: &JsonValue) -> bool {
        let is_optional = self.column.nullable && self.column.default.is_none();
        match &self.column.source {
            ColumnSource::Path(path) => is_optional && path.select(record).is_none(),
            ColumnSource::Cel(_) | ColumnSource::Constant(_) => false,
        }
    }

    fn value(&self, record: &JsonValue, evaluator: &mut Evaluator<'_>) -> Result<ColumnValue, ColumnError> {
        if let Some(constant) = &self.constant {
            return Ok(constant.clone());
        }
        if let Some(expression) = &self.expression {
            let as_error = |error: ExpressionError| ColumnError::Expression {
                column: self.column.name.clone(),
                reason: error.to_string(),
            };
            let value = evaluator.evaluate(expression).map_err(as_error)?;
            return self.column.value_of(Some(&value));
        }
        match &self.column.source {
            ColumnSource::Path(path) => self.column.value_of(path.select(record)),
            ColumnSource::Cel(_) | ColumnSource::Constant(_) => self.column.value_of(None),
        }
    }
}

/// Maps each top-level key to a column of its own type.
fn map_inferred(record: &JsonValue) -> MappedRow {
    let mut row = MappedRow {
        values: Vec::new(),
        errors: Vec::new(),
        unused_keys: Vec::new(),
        absent: Vec::new(),
        is_deleted: false,
    };
    for column in infer_columns([record]) {
        let value = match &column.source {
            ColumnSource::Path(path) => column.value_of(path.select(record)),
            ColumnSource::Cel(_) | ColumnSource::Constant(_) => column.value_of(None),
        };
        match value {
            Ok(value) => row.values.push((column.name, value)),
            Err(error) => row.errors.push(error),
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    fn definition(columns: &str) -> FeedDefinition {
        let text = format!(
            "version: 1\nfeed: f\nclient: {{base_url: https://x.test}}\nresource: {{path: /x, primary_key: id}}\n\
             into:\n  table: s.t\n  columns:\n    id: {{nullable: false}}\n{columns}"
        );
        crate::rest::parse_definition(&text).unwrap_or_else(|errors| panic!("{errors:#?}"))
    }

    fn map(columns: &str, payload: &str) -> MappedRow {
        let definition = definition(columns);
        Mapper::new(&definition, 1_000).unwrap().map(payload).unwrap()
    }

    #[test]
    fn columns_are_mapped_from_paths_constants_and_expressions() {
        let row = map(
            "    total: {path: sum.value, type: decimal}\n    source: {constant: shop}\n    \
             name: {cel: \"record.first + ' ' + record.last\"}\n    n: {type: integer, default: 0}\n",
            r#"{"id":7,"sum":{"value":12.50},"first":"A","last":"B","extra":1}"#,
        );
        let text = |text: &str| ColumnValue::Text(text.to_owned());
        let expected = [
            ("id", text("7")),
            ("total", ColumnValue::Decimal("12.50".into())),
            ("source", text("shop")),
            ("name", text("A B")),
            ("n", ColumnValue::Integer("0".into())),
        ];
        let expected: Vec<_> = expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!((row.values, row.errors, row.unused_keys), (expected, vec![], vec!["extra".to_owned()]));
    }

    #[test]
    fn absent_fields_of_optional_columns_are_named() {
        let columns =
            "    a: {}\n    b: {}\n    c: {default: x}\n    d: {nullable: false}\n    e: {path: f.g}\n";
        assert_eq!(map(columns, r#"{"id":7,"b":null}"#).absent, ["a", "e"]);
        assert_eq!(map(columns, r#"{"id":7,"a":1,"b":2,"f":{"g":null}}"#).absent, Vec::<String>::new());
    }

    #[test]
    fn each_column_has_its_own_error() {
        let row = map(
            "    n: {type: integer}\n    must: {nullable: false}\n    x: {cel: record.missing}\n    ok: {}\n",
            r#"{"id":"a","n":"many","ok":"fine"}"#,
        );
        let errors: Vec<_> = row.errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors[0], "the column `n`: `many` is not an integer");
        assert_eq!(errors[1], "the column `must` is missing");
        assert!(errors[2].starts_with("the column `x`: "), "{errors:?}");
        assert_eq!(row.values.len(), 2);
    }

    #[test]
    fn columns_are_inferred_without_a_list() {
        let mut definition = definition("");
        definition.into.columns.clear();
        let row = Mapper::new(&definition, 1_000)
            .unwrap()
            .map(r#"{"id":1,"createdAt":"2026-01-01","tags":["a"]}"#)
            .unwrap();
        let names: Vec<_> = row.values.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["id", "created_at", "tags"]);
        assert_eq!(row.values[2].1, ColumnValue::Json("[\"a\"]".into()));
    }
}
