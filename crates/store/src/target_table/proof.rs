//! Reads the rows of a feed's table, so that they can be compared with the source.

use super::{names, unusable};
use crate::schema::quoted;
use crate::tx::Conn;
use crate::{Error, Store};
use sqlx::AssertSqlSafe;
use tidemill_core::feed_definition::TableName;

impl Store {
    /// Returns the next rows after a key, in the order of the key: the key, and the columns as one text that `|`
    /// separates, with `NULL` for a missing value.
    pub async fn target_proof_rows(
        &self,
        table: &TableName,
        key: &str,
        columns: &[&str],
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, String)>, Error> {
        let schema = &self.context.schema;
        if let Some(problem) = names::forbidden(schema, table) {
            return Err(unusable(problem));
        }
        let shown = |column: &str| format!("coalesce(CAST({} AS text), 'NULL')", quoted(column));
        let line = columns.iter().map(|column| shown(column)).collect::<Vec<_>>().join(" || '|' || ");
        // The order of SQLite is that of bytes.
        let order = if schema.is_sqlite() { "" } else { " COLLATE \"C\"" };
        let key = format!("CAST({} AS text){order}", quoted(key));
        let table = names::table_sql(schema, table);
        let text = format!("SELECT {key}, {line} FROM {table} WHERE {key} > $1 ORDER BY {key} LIMIT $2");
        let (after, limit) = (after.to_owned(), i64::try_from(limit).unwrap_or(i64::MAX));
        self.read(move |mut tx| {
            Box::pin(async move {
                let text = AssertSqlSafe(text);
                let found = match &mut tx.conn {
                    Conn::Postgres(conn) => {
                        let query = sqlx::query_as(text).bind(after).bind(limit);
                        query.persistent(false).fetch_all(&mut **conn).await
                    }
                    Conn::Sqlite(conn) => {
                        sqlx::query_as(text).bind(after).bind(limit).fetch_all(&mut **conn).await
                    }
                };
                found.map_err(|error| Error::database("read the table of a feed", error))
            })
        })
        .await
    }
}
