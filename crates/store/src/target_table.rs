//! The tables of a feed: raw records, and the user's table that receives the rows.

mod bind;
mod describe;
mod names;
mod plan;
mod proof;
mod rows;
mod statements;
mod unique;
mod usage;

pub(crate) use names::table_key;
pub use unique::UniqueKeys;

use crate::catalog::Statement;
use crate::{Error, Refusal, RefusalCode};
use std::sync::Arc;
use tidemill_core::feed::RawTable;
use tidemill_core::feed_definition::cast::ColumnValue;
use tidemill_core::feed_definition::target::{TableName, WriteDisposition};
use tidemill_core::table_claim::TableClaim;

/// The tables of one feed.
#[derive(Debug, Clone)]
pub struct FeedTables {
    pub feed: String,
    pub raw: RawTable,
    /// Table that the feed's definition names. `None`: the rows are diamonds.
    pub target: Option<Arc<TargetTable>>,
}

impl FeedTables {
    /// Selects the statement for diamonds, or the one for rows of a definition.
    pub(crate) fn select(&self, diamonds: Statement, rows: Statement) -> Statement {
        if self.target.is_some() { rows } else { diamonds }
    }
}

/// A user's table as the database describes it, and how a definition writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetTable {
    pub name: TableName,
    pub columns: Vec<TargetColumn>,
    pub write: WriteDisposition,
    /// Columns that identify a row.
    pub primary_key: Vec<String>,
    /// Column that marks deleted rows. `None`: rows are deleted.
    pub deleted_at: Option<String>,
    /// Columns of each unique index that a merge can use.
    pub unique_keys: Vec<Vec<String>>,
    /// The rows that the feed may write.
    pub claim: TableClaim,
}

/// A column of a user's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetColumn {
    pub name: String,
    /// Type as the database spells it.
    pub database_type: String,
    pub nullable: bool,
    pub has_default: bool,
    /// Whether the database computes the value, and accepts no other.
    pub is_generated: bool,
    /// Type to which a text is cast, without a length: a text that is too long is an error, and not cut.
    pub cast_type: String,
}

impl TargetTable {
    /// Returns a column by name. SQLite ignores the case of names.
    pub fn column(&self, name: &str) -> Option<&TargetColumn> {
        let exact = self.columns.iter().find(|column| column.name == name);
        exact.or_else(|| self.columns.iter().find(|column| column.is_lenient(name)))
    }
}

impl TargetColumn {
    /// Returns whether this is a column of SQLite with this name in another case.
    fn is_lenient(&self, name: &str) -> bool {
        self.cast_type.is_empty() && self.name.eq_ignore_ascii_case(name)
    }
}

/// A row for a user's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRow {
    pub record_id: String,
    /// Hash of the raw record.
    pub payload_hash: Vec<u8>,
    /// Columns and their values.
    pub values: Vec<(String, ColumnValue)>,
    /// Whether the record says that it is deleted.
    pub is_deleted: bool,
}

/// The statements that make a user's table fit a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePlan {
    pub table: TableName,
    pub exists: bool,
    /// Statements to run, in order. Empty if the table fits.
    pub statements: Vec<String>,
    /// Why the table cannot be used, as sentences.
    pub problems: Vec<String>,
}

/// Returns an error of the user's table. It concerns this feed only, so the process continues with the others.
fn unusable(message: String) -> Error {
    let hint = Some("tidemill feed apply FILE".to_owned());
    Error::Refused(Refusal { code: RefusalCode::BadValue, message, hint })
}
