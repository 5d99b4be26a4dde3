//! Rows that cannot be decoded: each is skipped, logged once, and counted. The other rows of the list are returned.
//!
//! [`crate::codec`] reads almost every value, so few rows are affected. They have an unknown label, such as a
//! status that a newer version wrote, or a NULL that the schema does not allow.
//!
//! Only lists and loops that serve many callers skip rows. A read that needs the complete set of rows of one graph or
//! sync returns an error instead.

use crate::codec::Columns;
use crate::tx::{FromColumns, Rows};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Maximum number of rows remembered as logged. Beyond it, every skipped row is logged.
const LOGGED_MAX: usize = 1_000;

/// Maximum length of an id in a warning.
const NAME_CHARS: usize = 100;

static LOGGED: Mutex<Option<HashSet<(&'static str, String)>>> = Mutex::new(None);

impl Rows {
    /// Reads every readable row. `id` is the column that a warning names.
    pub(crate) fn readable<T: FromColumns>(self, table: &'static str, id: &str) -> Vec<T> {
        match self {
            Self::Postgres(rows) => rows.iter().filter_map(|row| read(row, table, id)).collect(),
            Self::Sqlite(rows) => rows.iter().filter_map(|row| read(row, table, id)).collect(),
        }
    }

    /// Reads the rows, without the groups that have an unreadable row. A caller that decides about a group needs all of
    /// its rows; the other groups are unaffected. `group` is the column that names the group.
    pub(crate) fn readable_groups<T: FromColumns>(
        self,
        table: &'static str,
        id: &str,
        group: &str,
    ) -> sqlx::Result<Vec<T>> {
        match self {
            Self::Postgres(rows) => groups(&rows, table, id, group),
            Self::Sqlite(rows) => groups(&rows, table, id, group),
        }
    }
}

fn groups<T: FromColumns>(
    rows: &[impl Columns],
    table: &'static str,
    id: &str,
    group: &str,
) -> sqlx::Result<Vec<T>> {
    let mut broken = HashSet::new();
    let mut records = Vec::with_capacity(rows.len());
    for row in rows {
        let name = row.text(group)?;
        match read(row, table, id) {
            Some(record) => records.push((name, record)),
            None => _ = broken.insert(name),
        }
    }
    Ok(records.into_iter().filter(|(name, _)| !broken.contains(name)).map(|(_, record)| record).collect())
}

fn read<T: FromColumns>(row: &impl Columns, table: &'static str, id: &str) -> Option<T> {
    T::read(row).inspect_err(|error| skipped(row, table, id, error)).ok()
}

/// Counts a skipped row, and logs it unless it was logged before.
pub(crate) fn skipped(row: &impl Columns, table: &'static str, id: &str, error: &sqlx::Error) {
    metrics::counter!("tidemill_unreadable_rows_total", "table" => table).increment(1);
    let name = row.text(id).or_else(|_| row.uuid(id).map(|uuid| uuid.to_string()));
    let name = name.or_else(|_| row.long(id).map(|number| number.to_string()));
    let name: String = name.unwrap_or_else(|_| "?".to_owned()).chars().take(NAME_CHARS).collect();
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    let logged = logged.get_or_insert_with(HashSet::new);
    if logged.contains(&(table, name.clone())) {
        return;
    }
    tracing::warn!("row `{name}` of table {table} is unreadable and is skipped: {error}");
    if logged.len() < LOGGED_MAX {
        logged.insert((table, name));
    }
}
