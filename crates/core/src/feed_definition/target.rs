//! The part of a definition that describes the table: columns, write disposition, schema contract.

use super::cast::{CastError, ColumnValue, cast};
use super::paging::TimeFormat;
use super::path::JsonPath;
use super::value::JsonValue;
use crate::Json;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The table that receives the records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Target {
    pub table: TableName,
    /// Columns of the primary key.
    pub primary_key: Vec<String>,
    /// Columns. An empty list means that they are inferred from the data.
    pub columns: Vec<Column>,
    pub write_disposition: WriteDisposition,
    /// Column with the time at which a row was marked as deleted. `None`: rows are deleted.
    #[serde(default)]
    pub deleted_at: Option<String>,
    pub schema_contract: SchemaContract,
}

/// Name of a table in a schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TableName {
    pub schema: String,
    pub table: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// A column and the origin of its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Column {
    pub name: String,
    pub source: ColumnSource,
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// Format of timestamps and dates.
    pub format: Option<TimeFormat>,
    /// Value for a record without one.
    pub default: Option<Json>,
    pub nullable: bool,
}

/// Origin of a column's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ColumnSource {
    Path(JsonPath),
    /// A CEL expression over the variable `record`.
    Cel(String),
    Constant(Json),
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    Text,
    /// An integer of any size.
    Integer,
    /// A decimal number of any size.
    Decimal,
    Boolean,
    Timestamp,
    Date,
    Json,
}

impl ColumnType {
    pub const ALL: [(&'static str, Self); 7] = [
        ("text", Self::Text),
        ("integer", Self::Integer),
        ("decimal", Self::Decimal),
        ("boolean", Self::Boolean),
        ("timestamp", Self::Timestamp),
        ("date", Self::Date),
        ("json", Self::Json),
    ];

    /// Returns the word of the definition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Decimal => "decimal",
            Self::Boolean => "boolean",
            Self::Timestamp => "timestamp",
            Self::Date => "date",
            Self::Json => "json",
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The way in which records are written to the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WriteDisposition {
    /// Insert or update by primary key.
    #[default]
    Merge,
    /// Insert every version of a record.
    Append,
    /// Replace the contents of the table.
    Replace,
}

/// Reaction to data that the table does not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContractMode {
    /// Changes the table, in a step of its own.
    #[default]
    Evolve,
    /// Fails the sync with the difference.
    Freeze,
    /// Rejects the record, with the reason.
    DiscardRow,
    /// Leaves the value out of the row.
    DiscardValue,
}

/// Reactions to a missing table and to new columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SchemaContract {
    pub tables: ContractMode,
    pub columns: ContractMode,
}

/// Why a column has no value for a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    #[error("the column `{column}`: {error}")]
    Cast { column: String, error: CastError },
    /// The record has no value, and the column has no default and is not nullable.
    #[error("the column `{column}` is missing")]
    Missing { column: String },
    #[error("the column `{column}`: {reason}")]
    Expression { column: String, reason: String },
}

impl ColumnError {
    /// Returns the name of the column.
    pub fn column(&self) -> &str {
        match self {
            Self::Cast { column, .. } | Self::Missing { column } | Self::Expression { column, .. } => column,
        }
    }
}

impl Column {
    /// Casts a constant or a default to the type of the column.
    pub fn cast_literal(&self, value: &Json) -> Result<ColumnValue, CastError> {
        cast(&JsonValue::from(value), self.column_type, self.format)
    }

    /// Casts a value of a record. A missing value becomes the default, or NULL if the column is nullable.
    pub fn value_of(&self, value: Option<&JsonValue>) -> Result<ColumnValue, ColumnError> {
        let as_error = |error| ColumnError::Cast { column: self.name.clone(), error };
        let found =
            value.map(|value| cast(value, self.column_type, self.format)).transpose().map_err(as_error)?;
        match found {
            Some(ColumnValue::Null) | None => {}
            Some(value) => return Ok(value),
        }
        match &self.default {
            Some(default) => self.cast_literal(default).map_err(as_error),
            None if self.nullable => Ok(ColumnValue::Null),
            None => Err(ColumnError::Missing { column: self.name.clone() }),
        }
    }
}
