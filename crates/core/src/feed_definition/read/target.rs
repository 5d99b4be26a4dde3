//! Parses the section `into`.

use super::{ExpressionCheck, json_of, path};
use crate::definition::error::{DefinitionErrors, Position, shown};
use crate::definition::fields::Fields;
use crate::definition::yaml::{Node, Value};
use crate::feed_definition::infer::column_name;
use crate::feed_definition::path::JsonPath;
use crate::feed_definition::read::rules::FORMATS;
use crate::feed_definition::target::{
    Column, ColumnSource, ColumnType, ContractMode, SchemaContract, TableName, Target, WriteDisposition,
};
use crate::limits::{EXPRESSION_BYTES_MAX, FEED_COLUMNS_MAX, FEED_KEY_PARTS_MAX, IDENTIFIER_BYTES_MAX};

pub(in super::super) const KEYS: [&str; 6] =
    ["table", "primary_key", "columns", "write_disposition", "deleted_at", "schema_contract"];
pub(in super::super) const COLUMN_KEYS: [&str; 7] =
    ["path", "cel", "constant", "type", "format", "default", "nullable"];
pub(in super::super) const CONTRACT_KEYS: [&str; 2] = ["tables", "columns"];

const DISPOSITIONS: [(&str, WriteDisposition); 3] = [
    ("merge", WriteDisposition::Merge),
    ("append", WriteDisposition::Append),
    ("replace", WriteDisposition::Replace),
];

pub(in super::super) const MODES: [(&str, ContractMode); 4] = [
    ("evolve", ContractMode::Evolve),
    ("freeze", ContractMode::Freeze),
    ("discard_row", ContractMode::DiscardRow),
    ("discard_value", ContractMode::DiscardValue),
];

const IDENTIFIER_HINT: &str = "use letters, digits and `_`, at most 63, not beginning with a digit";

pub(super) fn read(
    fields: &Fields,
    keys: &[JsonPath],
    check: ExpressionCheck<'_>,
    errors: &mut DefinitionErrors,
) -> Option<Target> {
    fields.check(&KEYS, errors);
    fields.require("table", "write `table: SCHEMA.TABLE`", errors);
    let table = table(fields, errors);
    let before = errors.0.len();
    let columns: Vec<Column> = fields
        .entries("columns", FEED_COLUMNS_MAX, errors)
        .into_iter()
        .filter_map(|(name, at, node)| column(name, at, node, check, errors))
        .collect();
    let has_bad_column = errors.0.len() > before;
    let primary_key = primary_key(fields, keys, &columns, errors);
    if let Some(keys) = primary_key.as_ref().filter(|_| !columns.is_empty() && !has_bad_column) {
        check_key_columns(keys, &columns, fields, errors);
    }
    let write_disposition = fields.word("write_disposition", &DISPOSITIONS, errors).unwrap_or_default();
    let deleted_at = deleted_at(fields, write_disposition, &columns, errors);
    Some(Target {
        table: table?,
        primary_key: primary_key?,
        columns,
        write_disposition,
        deleted_at,
        schema_contract: contract(fields, errors),
    })
}

fn table(fields: &Fields, errors: &mut DefinitionErrors) -> Option<TableName> {
    let text = fields.text("table", 2 * IDENTIFIER_BYTES_MAX + 1, errors)?;
    let at = fields.at("table");
    let Some((schema, table)) = text.split_once('.') else {
        errors.hint(at, format!("`{}` has no schema", shown(&text)), "write `table: SCHEMA.TABLE`");
        return None;
    };
    for part in [schema, table] {
        if !is_identifier(part) {
            errors.hint(at, format!("`{}` is not a valid identifier", shown(part)), IDENTIFIER_HINT);
            return None;
        }
    }
    let lower = schema.to_ascii_lowercase();
    if lower.starts_with("pg_") || matches!(lower.as_str(), "information_schema" | "sqlite_master" | "temp") {
        errors.hint(at, format!("the schema `{schema}` belongs to the database"), "choose a schema of yours");
        return None;
    }
    Some(TableName { schema: schema.to_owned(), table: table.to_owned() })
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= IDENTIFIER_BYTES_MAX
        && !text.starts_with(|symbol: char| symbol.is_ascii_digit())
        && text.chars().all(|symbol| symbol.is_ascii_alphanumeric() || symbol == '_')
}

/// Returns the column that marks deleted rows.
fn deleted_at(
    fields: &Fields,
    write_disposition: WriteDisposition,
    columns: &[Column],
    errors: &mut DefinitionErrors,
) -> Option<String> {
    let name = fields.text("deleted_at", IDENTIFIER_BYTES_MAX, errors)?;
    let at = fields.at("deleted_at");
    if !is_identifier(&name) {
        errors.hint(at, format!("`{}` is not a valid column name", shown(&name)), IDENTIFIER_HINT);
        return None;
    }
    if columns.iter().any(|column| column.name.eq_ignore_ascii_case(&name)) {
        let message = format!("the column `{name}` marks deleted rows and cannot have another value");
        errors.hint(at, message, "choose another name, or remove the column");
    }
    if write_disposition == WriteDisposition::Append {
        errors.hint(at, "appended rows are not deleted", "remove `deleted_at`");
    }
    Some(name)
}

/// Returns the columns of the primary key. The default are the columns of the record's id.
fn primary_key(
    fields: &Fields,
    keys: &[JsonPath],
    columns: &[Column],
    errors: &mut DefinitionErrors,
) -> Option<Vec<String>> {
    if fields.has("primary_key") {
        return fields.texts("primary_key", FEED_KEY_PARTS_MAX, IDENTIFIER_BYTES_MAX, errors);
    }
    let column_of = |key: &JsonPath| {
        let is_key = |column: &&Column| column.source == ColumnSource::Path(key.clone());
        match columns.iter().find(is_key) {
            Some(column) => Some(column.name.clone()),
            None if columns.is_empty() => key.keys().and_then(|keys| keys.last().map(|key| column_name(key))),
            None => None,
        }
    };
    let found: Option<Vec<String>> = keys.iter().map(column_of).collect();
    if found.is_none() {
        fields.require("primary_key", "write `primary_key:` with the columns that identify a row", errors);
    }
    found
}

fn check_key_columns(keys: &[String], columns: &[Column], fields: &Fields, errors: &mut DefinitionErrors) {
    let at = fields.at("primary_key");
    for key in keys {
        match columns.iter().find(|column| column.name == *key) {
            None => {
                let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                super::unknown_word("column", key, &known, at, errors);
            }
            Some(column) if column.nullable => {
                let message = format!("the column `{key}` of the primary key is nullable");
                errors.hint(at, message, format!("write `nullable: false` for `{key}`"));
            }
            Some(column) if column.column_type == ColumnType::Json => {
                errors.hint(
                    at,
                    format!("the column `{key}` of the primary key has the type json"),
                    "use `type: text`",
                );
            }
            Some(_) => {}
        }
    }
}

/// Reads a column: a mapping, or the path alone.
fn column(
    name: String,
    at: Position,
    node: Node,
    check: ExpressionCheck<'_>,
    errors: &mut DefinitionErrors,
) -> Option<Column> {
    if !is_identifier(&name) {
        errors.hint(at, format!("`{}` is not a valid column name", shown(&name)), IDENTIFIER_HINT);
        return None;
    }
    let node = if matches!(node.value, Value::Text(..)) {
        Node { at: node.at, value: Value::Map(vec![("path".to_owned(), node.at, node)]) }
    } else {
        node
    };
    let fields = Fields::read(&name, node, errors)?;
    fields.check_named(&format!("the column `{name}`"), &COLUMN_KEYS, errors);
    let source = source(&name, &fields, check, errors);
    let types = ColumnType::ALL;
    let column_type = fields.word("type", &types, errors).unwrap_or(ColumnType::Text);
    let format = fields.word("format", &FORMATS, errors);
    if format.is_some() && !matches!(column_type, ColumnType::Timestamp | ColumnType::Date) {
        errors.hint(fields.at("format"), "`format` belongs to timestamps and dates", "remove it");
    }
    let default = fields.node("default").map(json_of).filter(|value| !value.is_null());
    let source = source?;
    let nullable = fields.flag("nullable", errors).unwrap_or(!matches!(source, ColumnSource::Constant(_)));
    let column = Column { name, source, column_type, format, default, nullable };
    check_literals(&column, &fields, errors);
    Some(column)
}

fn source(
    name: &str,
    fields: &Fields,
    check: ExpressionCheck<'_>,
    errors: &mut DefinitionErrors,
) -> Option<ColumnSource> {
    let given: Vec<&str> = ["path", "cel", "constant"].into_iter().filter(|key| fields.has(key)).collect();
    match given.as_slice() {
        [] => Some(ColumnSource::Path(JsonPath::key(name))),
        ["path"] => path(fields, "path", errors).map(ColumnSource::Path),
        ["constant"] => fields.node("constant").map(json_of).map(ColumnSource::Constant),
        ["cel"] => {
            let text = fields.text("cel", EXPRESSION_BYTES_MAX, errors)?;
            if let Err(reason) = check(&text) {
                let message = format!("the expression of `{name}` {reason}");
                errors.hint(
                    fields.at("cel"),
                    message,
                    "use CEL over the variable `record`, such as `record.a + record.b`",
                );
                return None;
            }
            Some(ColumnSource::Cel(text))
        }
        _ => {
            let message = format!("{} exclude each other", given.join(", "));
            errors.hint(fields.at, message, "write one of path, cel and constant");
            None
        }
    }
}

/// Checks that constants and defaults fit the type of the column.
fn check_literals(column: &Column, fields: &Fields, errors: &mut DefinitionErrors) {
    let constant = match &column.source {
        ColumnSource::Constant(value) => Some(value),
        ColumnSource::Path(_) | ColumnSource::Cel(_) => None,
    };
    for (key, value) in [("constant", constant), ("default", column.default.as_ref())] {
        let Some(value) = value else { continue };
        if let Err(error) = column.cast_literal(value) {
            errors.add(fields.at(key), format!("`{key}` of the column `{}` {error}", column.name));
        }
    }
}

/// Reads `schema_contract`: a mapping, or one word for tables and columns.
fn contract(fields: &Fields, errors: &mut DefinitionErrors) -> SchemaContract {
    match fields.node("schema_contract").map(|node| &node.value) {
        None => SchemaContract::default(),
        Some(Value::Text(..)) => {
            let mode = fields.word("schema_contract", &MODES, errors).unwrap_or_default();
            SchemaContract { tables: mode, columns: mode }
        }
        Some(Value::List(_) | Value::Map(_)) => {
            let Some(fields) = fields.child("schema_contract", errors) else {
                return SchemaContract::default();
            };
            fields.check(&CONTRACT_KEYS, errors);
            SchemaContract {
                tables: fields.word("tables", &MODES, errors).unwrap_or_default(),
                columns: fields.word("columns", &MODES, errors).unwrap_or_default(),
            }
        }
    }
}
