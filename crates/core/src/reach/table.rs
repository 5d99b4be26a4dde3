//! Table rules: one table, or all tables of a schema.

use crate::feed_definition::TableName;
use crate::limits::IDENTIFIER_BYTES_MAX;
use std::fmt;
use std::str::FromStr;

/// A table that feeds of projects may write, or all tables of a schema. Names are compared exactly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableRule {
    schema: String,
    /// `None` for all tables of the schema.
    table: Option<String>,
}

impl TableRule {
    /// Returns whether a feed may write this table.
    pub fn allows(&self, name: &TableName) -> bool {
        self.schema == name.schema && self.table.as_ref().is_none_or(|table| *table == name.table)
    }
}

impl FromStr for TableRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            let shown: String = text.chars().take(64).collect();
            format!("`{shown}` is not a table; write SCHEMA.TABLE, or SCHEMA.* for all tables of a schema")
        };
        let (schema, table) = text.split_once('.').ok_or_else(invalid)?;
        if !is_identifier(schema) || !(table == "*" || is_identifier(table)) {
            return Err(invalid());
        }
        Ok(Self { schema: schema.to_owned(), table: Some(table.to_owned()).filter(|table| table != "*") })
    }
}

fn is_identifier(text: &str) -> bool {
    (1..=IDENTIFIER_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Display for TableRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table.as_deref().unwrap_or("*"))
    }
}

impl serde::Serialize for TableRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
