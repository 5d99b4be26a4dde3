//! How many rows of a user's table have a value in a column.

use super::names::table_sql;
use super::rows::{Key, keyed, table_columns, target_of};
use super::statements::write_error;
use super::{FeedTables, TargetColumn, TargetRow, TargetTable};
use crate::schema::quoted;
use crate::tx::Conn;
use crate::{Error, Schema, Tx};
use sqlx::AssertSqlSafe;
use std::sync::Arc;
use tidemill_core::feed_definition::lost_column::{ColumnUse, SAMPLE_ROWS_MAX};

impl Tx<'_> {
    /// Counts the values of a column: in the rows that these would replace, and in a sample of the table. All zero for
    /// rows that are only appended.
    pub async fn column_use(
        &mut self,
        tables: &FeedTables,
        rows: &[TargetRow],
        column: &str,
    ) -> Result<ColumnUse, Error> {
        let table = target_of(tables)?;
        if !table.has_keys() {
            return Ok(ColumnUse::default());
        }
        let is_sqlite = self.context.schema.is_sqlite();
        let keyed = rows.iter().map(|row| keyed(&table, row, is_sqlite)).collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<Key> = keyed.into_iter().filter_map(|row| row.key).collect();
        let column = quoted(&table_columns(&table, std::iter::once(column))?[0].name);
        let parts = table_columns(&table, table.primary_key.iter().map(String::as_str))?;
        let (rows, filled) = match &self.conn {
            Conn::Postgres(_) => self.use_on_postgres(&table, &parts, &column, &keys).await?,
            Conn::Sqlite(_) => self.use_on_sqlite(&table, &parts, &column, &keys).await?,
        };
        let name = table_sql(&self.context.schema, &table.name);
        let text = format!(
            "SELECT count(*), count(s.value) FROM (SELECT {column} AS value FROM {name} LIMIT {SAMPLE_ROWS_MAX}) s"
        );
        let (sample, sample_filled) = match &mut self.conn {
            Conn::Postgres(conn) => {
                sqlx::query_as::<_, (i64, i64)>(AssertSqlSafe(text))
                    .persistent(false)
                    .fetch_one(&mut **conn)
                    .await
            }
            Conn::Sqlite(conn) => {
                sqlx::query_as::<_, (i64, i64)>(AssertSqlSafe(text)).fetch_one(&mut **conn).await
            }
        }
        .map_err(|error| write_error(&table.name, error))?;
        let count = i64::unsigned_abs;
        Ok(ColumnUse {
            rows: count(rows),
            filled: count(filled),
            sample: count(sample),
            sample_filled: count(sample_filled),
        })
    }

    async fn use_on_postgres(
        &mut self,
        table: &TargetTable,
        parts: &[&TargetColumn],
        column: &str,
        keys: &[Key],
    ) -> Result<(i64, i64), Error> {
        let text = use_postgres(&self.context.schema, table, parts, column);
        let Conn::Postgres(conn) = &mut self.conn else { return Ok((0, 0)) };
        let mut query = sqlx::query_as::<_, (i64, i64)>(AssertSqlSafe(text));
        for index in 0..parts.len() {
            let values: Vec<Option<&str>> =
                keys.iter().map(|key| key.get(index).map(String::as_str)).collect();
            query = query.bind(values);
        }
        // Planned for each call, as deletions are.
        let found = query.persistent(false).fetch_one(&mut **conn).await;
        found.map_err(|error| write_error(&table.name, error))
    }

    async fn use_on_sqlite(
        &mut self,
        table: &TargetTable,
        parts: &[&TargetColumn],
        column: &str,
        keys: &[Key],
    ) -> Result<(i64, i64), Error> {
        let is_key: Vec<String> = parts
            .iter()
            .enumerate()
            .map(|(index, part)| format!("t.{} = ?{}", quoted(&part.name), index + 1))
            .collect();
        let name = table_sql(&self.context.schema, &table.name);
        let text: Arc<str> = Arc::from(format!(
            "SELECT count(*), count(t.{column}) FROM {name} AS t WHERE {}",
            is_key.join(" AND ")
        ));
        let Conn::Sqlite(conn) = &mut self.conn else { return Ok((0, 0)) };
        let (mut rows, mut filled) = (0, 0);
        for key in keys {
            let mut query = sqlx::query_as::<_, (i64, i64)>(AssertSqlSafe(text.clone()));
            for part in key {
                query = query.bind(part.as_str());
            }
            let found = query.fetch_one(&mut **conn).await;
            let (row, value) = found.map_err(|error| write_error(&table.name, error))?;
            (rows, filled) = (rows + row, filled + value);
        }
        Ok((rows, filled))
    }
}

/// Returns the statement that counts rows by key, and their values, on PostgreSQL.
fn use_postgres(schema: &Schema, table: &TargetTable, parts: &[&TargetColumn], column: &str) -> String {
    let arrays: Vec<String> = (1..=parts.len()).map(|place| format!("${place}::text[]")).collect();
    let names: Vec<String> = (0..parts.len()).map(|index| format!("c{index}")).collect();
    let is_key: Vec<String> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| format!("t.{} = g.c{index}::{}", quoted(&part.name), part.cast_type))
        .collect();
    format!(
        "SELECT count(*), count(t.{column}) FROM {} t, ROWS FROM (unnest({})) AS g ({}) WHERE {}",
        table_sql(schema, &table.name),
        arrays.join(", "),
        names.join(", "),
        is_key.join(" AND ")
    )
}
