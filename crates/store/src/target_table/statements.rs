//! The statements that write users' tables, and the meaning of their errors.

use super::names::{columns_sql, table_sql};
use super::{TargetColumn, TargetTable, unusable};
use crate::schema::quoted;
use crate::{Class, Error, Refusal, RefusalCode, Schema};
use std::fmt::Write as _;
use tidemill_core::feed_definition::target::{TableName, WriteDisposition};

impl TargetTable {
    /// Returns whether rows are identified by the primary key.
    pub(super) fn has_keys(&self) -> bool {
        match self.write {
            WriteDisposition::Merge | WriteDisposition::Replace => true,
            WriteDisposition::Append => false,
        }
    }

    fn is_key(&self, column: &TargetColumn) -> bool {
        self.primary_key.iter().any(|key| self.column(key).is_some_and(|known| known.name == column.name))
    }
}

/// Returns the statement that writes rows on PostgreSQL: one array of texts per column.
pub(super) fn upsert_postgres(schema: &Schema, table: &TargetTable, columns: &[&TargetColumn]) -> String {
    let (mut arrays, mut names, mut casts) = (String::new(), String::new(), String::new());
    for (index, column) in columns.iter().enumerate() {
        let _ = write!(arrays, "${}::text[], ", index + 1);
        let _ = write!(names, "c{index}, ");
        let _ = write!(casts, "g.c{index}::{} AS c{index}, ", column.cast_type);
    }
    // `WITH ORDINALITY` adds `place`, the position of the row in the call: of equal keys, the last row is written.
    let source = format!(
        "SELECT {casts}g.place FROM ROWS FROM (unnest({})) WITH ORDINALITY AS g ({names}place)",
        arrays.trim_end_matches(", ")
    );
    let list: Vec<String> = (0..columns.len()).map(|index| format!("t.c{index}")).collect();
    let keys: Vec<String> = columns
        .iter()
        .enumerate()
        .filter(|(_, column)| table.has_keys() && table.is_key(column))
        .map(|(index, _)| format!("t.c{index}"))
        .collect();
    let keys = keys.join(", ");
    // Of rows with the same key the last one is written: a statement cannot change a row twice. Rows are written in the
    // order of their keys, so that two writers cannot deadlock.
    let (distinct, order) = if keys.is_empty() {
        (String::new(), "t.place".to_owned())
    } else {
        (format!("DISTINCT ON ({keys}) "), format!("{keys}, t.place DESC"))
    };
    format!(
        "INSERT INTO {} ({}) SELECT {distinct}{} FROM ({source}) t ORDER BY {order}{}",
        table_sql(schema, &table.name),
        columns_sql(columns.iter().map(|column| column.name.as_str())),
        list.join(", "),
        on_conflict(table, columns),
    )
}

/// Returns the statement that writes one row on SQLite.
pub(super) fn upsert_sqlite(schema: &Schema, table: &TargetTable, columns: &[&TargetColumn]) -> String {
    let values: Vec<String> = (1..=columns.len()).map(|place| format!("?{place}")).collect();
    format!(
        "INSERT INTO {} ({}) VALUES ({}){}",
        table_sql(schema, &table.name),
        columns_sql(columns.iter().map(|column| column.name.as_str())),
        values.join(", "),
        on_conflict(table, columns),
    )
}

/// Changes only the columns of the definition: other columns belong to the user.
fn on_conflict(table: &TargetTable, columns: &[&TargetColumn]) -> String {
    if !table.has_keys() {
        return String::new();
    }
    let others = columns.iter().filter(|column| !table.is_key(column));
    let mut changes: Vec<String> = others
        .map(|column| quoted(&column.name))
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    changes.extend(table.deleted_at.as_ref().map(|column| format!("{} = NULL", quoted(column))));
    let keys = columns_sql(table.primary_key.iter().map(String::as_str));
    if changes.is_empty() {
        return format!(" ON CONFLICT ({keys}) DO NOTHING");
    }
    format!(" ON CONFLICT ({keys}) DO UPDATE SET {}", changes.join(", "))
}

/// Returns the statement that deletes rows by key on PostgreSQL, except those whose keys are written now. The first
/// arrays are the keys to delete, the others those to keep. `$1` is the time of the deletion if rows are only marked.
pub(super) fn delete_postgres(schema: &Schema, table: &TargetTable, keys: &[&TargetColumn]) -> String {
    let first = if table.deleted_at.is_some() { 2 } else { 1 };
    let side = |alias: &str, first: usize| {
        let arrays: Vec<String> =
            (0..keys.len()).map(|index| format!("${}::text[]", first + index)).collect();
        let names: Vec<String> = (0..keys.len()).map(|index| format!("c{index}")).collect();
        let equal: Vec<String> = keys
            .iter()
            .enumerate()
            .map(|(index, key)| format!("t.{} = {alias}.c{index}::{}", quoted(&key.name), key.cast_type))
            .collect();
        let source = format!("ROWS FROM (unnest({})) AS {alias} ({})", arrays.join(", "), names.join(", "));
        (source, equal.join(" AND "))
    };
    let (gone, is_gone) = side("g", first);
    let (kept, is_kept) = side("k", first + keys.len());
    let filter = format!("{is_gone} AND NOT EXISTS (SELECT FROM {kept} WHERE {is_kept})");
    let name = table_sql(schema, &table.name);
    match table.deleted_at.as_ref().map(|column| (quoted(column), table.column(column))) {
        None => format!("DELETE FROM {name} t USING {gone} WHERE {filter}"),
        Some((column, known)) => {
            let cast_type = known.map_or("timestamptz", |known| known.cast_type.as_str());
            format!(
                "UPDATE {name} t SET {column} = coalesce($1::timestamptz, clock_timestamp())::{cast_type} \
                 FROM {gone} WHERE {filter} AND t.{column} IS NULL"
            )
        }
    }
}

/// Returns the statement that deletes one row by key on SQLite. The last parameter is a JSON array of the keys to keep;
/// before it stands the time of the deletion.
pub(super) fn delete_sqlite(schema: &Schema, table: &TargetTable, keys: &[&TargetColumn]) -> String {
    let (mut is_gone, mut is_kept) = (Vec::new(), Vec::new());
    for (index, key) in keys.iter().enumerate() {
        let column = format!("t.{}", quoted(&key.name));
        is_gone.push(format!("{column} = ?{}", index + 1));
        is_kept.push(format!("{column} = json_extract(k.value, '$[{index}]')"));
    }
    let (time, kept) = (keys.len() + 1, keys.len() + 2);
    let filter = format!(
        "{} AND ?{time} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM json_each(?{kept}) k WHERE {})",
        is_gone.join(" AND "),
        is_kept.join(" AND ")
    );
    let name = table_sql(schema, &table.name);
    match table.deleted_at.as_ref().map(|column| quoted(column)) {
        None => format!("DELETE FROM {name} AS t WHERE {filter}"),
        Some(column) => {
            format!("UPDATE {name} AS t SET {column} = ?{time} WHERE {filter} AND t.{column} IS NULL")
        }
    }
}

/// Returns the error of a statement that writes a user's table. A table that no longer fits fails the sync of this
/// feed; other feeds, and this process, are not concerned.
pub(super) fn write_error(table: &TableName, source: sqlx::Error) -> Error {
    let Some(database) = source.as_database_error() else { return Error::database("write rows", source) };
    let code = database.code().unwrap_or_default();
    let is_postgres = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some();
    let message = database.message();
    let problem = match (&*code, is_postgres) {
        ("42P01" | "3F000", true) => format!("the table `{table}` does not exist any more"),
        ("42501", true) => {
            return Error::Refused(Refusal {
                code: RefusalCode::BadValue,
                message: format!("the database user lacks the privilege to write `{table}`: {message}"),
                hint: Some(format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO CURRENT_USER")),
            });
        }
        // Syntax and access rules, features that the table does not have, an object in the wrong state.
        (code, true) if code.starts_with("42") || matches!(code, "0A000" | "55000") => {
            format!("the table `{table}` does not fit the definition any more: {message}")
        }
        ("1", false) if message.starts_with("no such table") => {
            format!("the table `{table}` does not exist any more")
        }
        ("1", false) => format!("the table `{table}` does not fit the definition any more: {message}"),
        _ => return Error::database("write rows", source),
    };
    unusable(problem)
}

/// Returns the error of a statement that creates or changes a user's table.
pub(super) fn creation_error(table: &TableName, source: sqlx::Error) -> Error {
    let code = source.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default();
    let (what, hint) = match &*code {
        "42501" => (
            format!("the database user lacks the privilege to create or change `{table}`"),
            "run the statements as the owner of the schema, or grant CREATE on it".to_owned(),
        ),
        "42P07" | "42701" | "42P06" | "23505" => {
            (format!("`{table}` was changed at the same time"), "tidemill feed apply FILE --plan".to_owned())
        }
        _ => {
            let error = Error::database("change the table of a feed", source);
            return match (&error, error.class()) {
                (Error::Database { source, .. }, Class::Permanent) => {
                    unusable(format!("the database refused to change `{table}`: {source}"))
                }
                _ => error,
            };
        }
    };
    Error::Refused(Refusal { code: RefusalCode::BadValue, message: what, hint: Some(hint) })
}
