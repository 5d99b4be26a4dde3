//! Rows of `feed_records`: which version of a record is in the user's table, and under which key.

use crate::codec::{Columns, SqlTextList};
use crate::tx::{Conn, FromColumns, Tx, on};
use crate::{Error, catalog};
use std::collections::{BTreeSet, HashMap};
use tidemill_core::Timestamp;
use tidemill_core::records::RecordState;

/// State of the row of a record.
#[derive(Debug)]
pub(crate) struct RecordEntry {
    record_id: String,
    /// Key of the row. `None` if rows are only appended, or there was never one.
    pub(crate) row_key: Option<String>,
    /// Hash of the raw record from which the row was built.
    pub(crate) built_hash: Vec<u8>,
    pub(crate) state: RecordState,
}

impl FromColumns for RecordEntry {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            record_id: row.text("record_id")?,
            row_key: row.text_or_null("row_key")?,
            built_hash: row.bytes("built_hash")?,
            state: row.parsed("state")?,
        })
    }
}

/// The key of a row that is no longer needed.
struct ReleasedKey(Option<String>);

impl FromColumns for ReleasedKey {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.text_or_null("row_key")?))
    }
}

/// An entry that replaces the known one.
#[derive(Debug)]
pub(crate) struct NewRecordEntry<'a> {
    pub(crate) record_id: &'a str,
    pub(crate) row_key: Option<String>,
    pub(crate) built_hash: &'a [u8],
    pub(crate) state: RecordState,
}

impl Tx<'_> {
    /// Marks every row of a feed to be built again, because the table may have lost rows.
    pub async fn forget_rows(&mut self, feed: &str) -> Result<u64, Error> {
        Ok(on!(self, catalog::ROW_FORGET, [feed], execute, "forget rows of a feed")?.count())
    }

    /// Reads the entries of records, and locks them until the transaction ends.
    pub(crate) async fn record_entries(
        &mut self,
        feed: &str,
        records: Vec<String>,
    ) -> Result<HashMap<String, RecordEntry>, Error> {
        let records = SqlTextList(records);
        let entries: Vec<RecordEntry> =
            on!(self, catalog::RECORD_ENTRIES, [feed, records.clone()], fetch_all, "read records of a feed")?
                .records("read records of a feed")?;
        Ok(entries.into_iter().map(|entry| (entry.record_id.clone(), entry)).collect())
    }

    /// Returns the stored key of a record's row.
    pub async fn row_key(&mut self, feed: &str, record: &str) -> Result<Option<String>, Error> {
        let entries = self.record_entries(feed, vec![record.to_owned()]).await?;
        Ok(entries.into_values().next().and_then(|entry| entry.row_key))
    }

    /// Returns those of the keys that active records other than these have, of all feeds that write the table.
    pub(crate) async fn claimed_keys(
        &mut self,
        feed: &str,
        keys: &BTreeSet<String>,
        records: &[&str],
        table: &str,
    ) -> Result<Vec<String>, Error> {
        let keys = SqlTextList(keys.iter().cloned().collect());
        let records = SqlTextList(records.iter().map(|id| (*id).to_owned()).collect());
        on!(
            self,
            catalog::ROW_CLAIMS,
            [feed, keys.clone(), records.clone(), table],
            fetch_all,
            "read records of a feed"
        )?
        .records("read records of a feed")
    }

    /// Marks active records as absent; returns the key of each row, if it has one.
    pub(crate) async fn mark_absent(
        &mut self,
        feed: &str,
        records: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<Vec<Option<String>>, Error> {
        let (records, now) = (SqlTextList(records), self.time(now));
        let released: Vec<ReleasedKey> = on!(
            self,
            catalog::ROW_ABSENT,
            [feed, records.clone(), now],
            fetch_all,
            "mark records as absent"
        )?
        .records("mark records as absent")?;
        Ok(released.into_iter().map(|ReleasedKey(key)| key).collect())
    }

    pub(crate) async fn put_lines(
        &mut self,
        feed: &str,
        entries: &[NewRecordEntry<'_>],
        mapper_version: i32,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let (sql, now) = (self.sql(catalog::ROW_PUT), self.time(now));
        let failed = |source| Error::database("write records of a feed", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let query = sqlx::query(sql)
                    .bind(feed)
                    .bind(mapper_version)
                    .bind(now)
                    .bind(entries.iter().map(|entry| entry.record_id).collect::<Vec<_>>())
                    .bind(entries.iter().map(|entry| entry.row_key.as_deref()).collect::<Vec<_>>())
                    .bind(entries.iter().map(|entry| entry.built_hash).collect::<Vec<_>>())
                    .bind(entries.iter().map(|entry| entry.state.as_str()).collect::<Vec<_>>());
                query.persistent(self.context.named).execute(&mut **conn).await.map_err(failed)?;
            }
            Conn::Sqlite(conn) => {
                for entry in entries {
                    let query = sqlx::query(sqlx::AssertSqlSafe(sql.0.clone()))
                        .bind(feed)
                        .bind(mapper_version)
                        .bind(now)
                        .bind(entry.record_id)
                        .bind(entry.row_key.as_deref())
                        .bind(entry.built_hash)
                        .bind(entry.state.as_str());
                    query.execute(&mut **conn).await.map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
    use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};
    use tidemill_core::feed::{REST_KIND, RawTable};

    /// Without statistics, SQLite would search the list of a call for each record of the feed.
    #[tokio::test]
    async fn sqlite_searches_records_by_index() {
        let schema = Schema::sqlite();
        let raw = RawTable::of(REST_KIND, "orders");
        let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let migration = schema.render(include_str!("../migrations/sqlite/0001_schema.sql"));
        let create = schema.render_raw(catalog::sqlite(catalog::RAW_CREATE), &raw);
        for text in [migration, create] {
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut conn).await.unwrap();
        }
        for statement in [
            catalog::ROW_OPEN,
            catalog::ROW_STALE,
            catalog::ROW_ACTIVE,
            catalog::RECORD_ENTRIES,
            catalog::ROW_CLAIMS,
            catalog::ROW_ABSENT,
        ] {
            let text = schema.render_raw(catalog::sqlite(statement), &raw);
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
            let rows = sqlx::query(explain).fetch_all(&mut conn).await.unwrap();
            let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
            let is_walk =
                |step: &String| ["SCAN f", "SCAN r", "(feed=?)"].iter().any(|walk| step.contains(walk));
            assert!(!steps.iter().any(is_walk), "{text}: {steps:?}");
        }
    }
}
