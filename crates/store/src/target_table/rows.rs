//! Writes rows of a definition into the user's table, together with their entries in `feed_records`.

use super::statements::{delete_postgres, delete_sqlite, upsert_postgres, upsert_sqlite, write_error};
use super::{FeedTables, TargetColumn, TargetRow, TargetTable, bind, table_key, unusable};
use crate::codec::SqlTime;
use crate::feed_records::{NewRecordEntry, RecordEntry};
use crate::tx::Conn;
use crate::{BuildVersions, Error, Tx};
use sqlx::AssertSqlSafe;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tidemill_core::Timestamp;
use tidemill_core::feed_definition::ColumnValue;
use tidemill_core::records::RecordState;

/// The values of a row's primary key, as texts, in the order of the definition.
pub(super) type Key = Vec<String>;

/// A row with its key.
pub(super) struct KeyedRow<'a> {
    row: &'a TargetRow,
    /// `None` if rows have no key, or if a deleted record does not contain it.
    pub(super) key: Option<Key>,
}

impl Tx<'_> {
    /// Writes rows into the user's table; returns how many were written or deleted. The row and the entry that says
    /// from which version of the record it was built are committed together. A row that the table refuses fails all of
    /// them with [`Error::is_bad_value`].
    pub async fn upsert_rows(
        &mut self,
        tables: &FeedTables,
        rows: &[TargetRow],
        built: BuildVersions,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let table = target_of(tables)?;
        if rows.is_empty() {
            return Ok(0);
        }
        let is_sqlite = self.context.schema.is_sqlite();
        let keyed = rows.iter().map(|row| keyed(&table, row, is_sqlite)).collect::<Result<Vec<_>, _>>()?;
        let ids = rows.iter().map(|row| row.record_id.clone()).collect();
        let entries = self.record_entries(&tables.feed, ids).await?;
        let deleted = self.delete_released(tables, &table, &keyed, &entries, now).await?;
        let live: Vec<&TargetRow> = keyed
            .iter()
            .filter(|keyed| !keyed.row.is_deleted && !is_appended(&table, keyed.row, &entries))
            .map(|keyed| keyed.row)
            .collect();
        let written = self.write_rows(&table, &live).await?;
        let new: Vec<NewRecordEntry<'_>> =
            keyed.iter().map(|keyed| new_entry(&table, keyed, &entries)).collect();
        self.put_lines(&tables.feed, &new, built.mapper_version, now).await?;
        Ok(deleted + written)
    }

    /// Marks records as absent and deletes their rows; returns how many were active.
    pub(crate) async fn delete_rows(
        &mut self,
        tables: &FeedTables,
        records: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let table = target_of(tables)?;
        let released = self.mark_absent(&tables.feed, records, now).await?;
        let count = u64::try_from(released.len()).unwrap_or(u64::MAX);
        if table.has_keys() {
            let keys = released.into_iter().flatten().collect();
            self.delete_unclaimed(tables, &table, keys, Vec::new(), &[], now).await?;
        }
        Ok(count)
    }

    /// Deletes the rows that these records had under another key, and the rows of deleted records.
    async fn delete_released(
        &mut self,
        tables: &FeedTables,
        table: &TargetTable,
        rows: &[KeyedRow<'_>],
        entries: &HashMap<String, RecordEntry>,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        if !table.has_keys() {
            return Ok(0);
        }
        let mut released = BTreeSet::new();
        for KeyedRow { row, key } in rows {
            let old = entries.get(&row.record_id).filter(|entry| entry.state == RecordState::Active);
            let new = key.as_deref().map(|key| key_text(table, key));
            let moved = old.and_then(|entry| entry.row_key.clone());
            released.extend(moved.filter(|old| row.is_deleted || Some(old) != new.as_ref()));
            released.extend(new.filter(|_| row.is_deleted));
        }
        let is_live = |keyed: &&KeyedRow<'_>| !keyed.row.is_deleted;
        let kept = rows.iter().filter(is_live).filter_map(|keyed| keyed.key.clone()).collect();
        let ids: Vec<&str> = rows.iter().map(|keyed| keyed.row.record_id.as_str()).collect();
        self.delete_unclaimed(tables, table, released, kept, &ids, now).await
    }

    /// Deletes rows by key, except those in `kept` and those of other active records.
    async fn delete_unclaimed(
        &mut self,
        tables: &FeedTables,
        table: &TargetTable,
        mut released: BTreeSet<String>,
        kept: Vec<Key>,
        records: &[&str],
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        // Another definition wrote other rows by other keys: the row that such a key selects now is not this record's.
        released.retain(|text| read_key(table, text).is_some());
        if released.is_empty() {
            return Ok(0);
        }
        let name = table_key(&self.context.schema, &table.name);
        for claimed in self.claimed_keys(&tables.feed, &released, records, &name).await? {
            released.remove(&claimed);
        }
        let gone: Vec<Key> = released.iter().filter_map(|text| read_key(table, text)).collect();
        if gone.is_empty() {
            return Ok(0);
        }
        let keys = table_columns(table, table.primary_key.iter().map(String::as_str))?;
        match &self.conn {
            Conn::Postgres(_) => self.delete_on_postgres(table, &keys, [&gone, &kept], now).await,
            Conn::Sqlite(_) => self.delete_on_sqlite(table, &keys, [&gone, &kept], now).await,
        }
    }

    async fn delete_on_postgres(
        &mut self,
        table: &TargetTable,
        keys: &[&TargetColumn],
        sides: [&[Key]; 2],
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let text = delete_postgres(&self.context.schema, table, keys);
        let Conn::Postgres(conn) = &mut self.conn else { return Ok(0) };
        let mut query = sqlx::query(AssertSqlSafe(text));
        if table.deleted_at.is_some() {
            query = query.bind(now.map(SqlTime));
        }
        for side in sides {
            for index in 0..keys.len() {
                let values: Vec<Option<&str>> =
                    side.iter().map(|key| key.get(index).map(String::as_str)).collect();
                query = query.bind(values);
            }
        }
        // Not prepared: a cached plan from the time when the table was small would scan all of it.
        let query = query.persistent(false);
        let done = query.execute(&mut **conn).await.map_err(|error| write_error(&table.name, error))?;
        Ok(done.rows_affected())
    }

    async fn delete_on_sqlite(
        &mut self,
        table: &TargetTable,
        keys: &[&TargetColumn],
        [gone, kept]: [&[Key]; 2],
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let text: Arc<str> = Arc::from(delete_sqlite(&self.context.schema, table, keys));
        let time = bind::time_text(self.moment(now));
        let kept = serde_json::to_string(kept).unwrap_or_else(|_| "[]".to_owned());
        let Conn::Sqlite(conn) = &mut self.conn else { return Ok(0) };
        let mut deleted = 0;
        for key in gone {
            let mut query = sqlx::query(AssertSqlSafe(text.clone()));
            for part in key {
                query = query.bind(part.as_str());
            }
            let query = query.bind(time.as_str()).bind(kept.as_str());
            let done = query.execute(&mut **conn).await.map_err(|error| write_error(&table.name, error))?;
            deleted += done.rows_affected();
        }
        Ok(deleted)
    }

    /// Writes rows. Rows that lack a column are written by a statement of their own, which leaves it as it is.
    async fn write_rows(&mut self, table: &TargetTable, rows: &[&TargetRow]) -> Result<u64, Error> {
        let mut groups: BTreeMap<Vec<&str>, Vec<&TargetRow>> = BTreeMap::new();
        for row in rows {
            groups.entry(row.values.iter().map(|(name, _)| name.as_str()).collect()).or_default().push(row);
        }
        let mut written = 0;
        for (names, rows) in groups {
            let columns = table_columns(table, names.into_iter())?;
            written += match &self.conn {
                Conn::Postgres(_) => self.write_on_postgres(table, &columns, &rows).await?,
                Conn::Sqlite(_) => self.write_on_sqlite(table, &columns, &rows).await?,
            };
        }
        Ok(written)
    }

    async fn write_on_postgres(
        &mut self,
        table: &TargetTable,
        columns: &[&TargetColumn],
        rows: &[&TargetRow],
    ) -> Result<u64, Error> {
        let text = upsert_postgres(&self.context.schema, table, columns);
        let named = self.context.named;
        let Conn::Postgres(conn) = &mut self.conn else { return Ok(0) };
        let mut query = sqlx::query(AssertSqlSafe(text));
        for index in 0..columns.len() {
            let cells: Vec<_> = rows
                .iter()
                .map(|row| row.values.get(index).and_then(|(_, value)| bind::text(value, false)))
                .collect();
            query = query.bind(cells.iter().map(|cell| cell.as_deref()).collect::<Vec<Option<&str>>>());
        }
        let query = query.persistent(named);
        let done = query.execute(&mut **conn).await.map_err(|error| write_error(&table.name, error))?;
        Ok(done.rows_affected())
    }

    async fn write_on_sqlite(
        &mut self,
        table: &TargetTable,
        columns: &[&TargetColumn],
        rows: &[&TargetRow],
    ) -> Result<u64, Error> {
        let text: Arc<str> = Arc::from(upsert_sqlite(&self.context.schema, table, columns));
        let Conn::Sqlite(conn) = &mut self.conn else { return Ok(0) };
        let mut written = 0;
        for row in rows {
            let mut query = sqlx::query(AssertSqlSafe(text.clone()));
            for (column, (_, value)) in columns.iter().zip(&row.values) {
                query = bind::bind_sqlite(query, column, value)?;
            }
            let done = query.execute(&mut **conn).await.map_err(|error| write_error(&table.name, error))?;
            written += done.rows_affected();
        }
        Ok(written)
    }
}

pub(super) fn target_of(tables: &FeedTables) -> Result<Arc<TargetTable>, Error> {
    let missing = || unusable(format!("the feed `{}` has no table for its rows", tables.feed));
    tables.target.clone().ok_or_else(missing)
}

/// Returns the columns of a table by name.
pub(super) fn table_columns<'t, 'n>(
    table: &'t TargetTable,
    names: impl Iterator<Item = &'n str>,
) -> Result<Vec<&'t TargetColumn>, Error> {
    let column = |name: &str| {
        let missing = || unusable(format!("the table `{}` has no column `{name}`", table.name));
        table.column(name).ok_or_else(missing)
    };
    names.map(column).collect()
}

/// Reads the key of a row. A live row without a complete key is refused: the database would insert it again each time.
pub(super) fn keyed<'a>(
    table: &TargetTable,
    row: &'a TargetRow,
    is_sqlite: bool,
) -> Result<KeyedRow<'a>, Error> {
    if !table.has_keys() {
        return Ok(KeyedRow { row, key: None });
    }
    let part = |name: &String| {
        let value = row.values.iter().find(|(column, _)| column == name).map(|(_, value)| value);
        let text = bind::text(value.unwrap_or(&ColumnValue::Null), is_sqlite).map(Cow::into_owned);
        text.ok_or_else(|| bind::unsuitable(format!("the column `{name}` of the primary key has no value")))
    };
    let key = table.primary_key.iter().map(part).collect::<Result<Key, Error>>();
    match key {
        Ok(key) => Ok(KeyedRow { row, key: Some(key) }),
        Err(_) if row.is_deleted => Ok(KeyedRow { row, key: None }),
        Err(error) => Err(error),
    }
}

/// Returns whether this version of a record was appended before: another mapper must not append it again.
fn is_appended(table: &TargetTable, row: &TargetRow, entries: &HashMap<String, RecordEntry>) -> bool {
    let entry = entries.get(&row.record_id).filter(|entry| entry.state == RecordState::Active);
    !table.has_keys() && entry.is_some_and(|entry| entry.built_hash == row.payload_hash)
}

fn new_entry<'a>(
    table: &TargetTable,
    KeyedRow { row, key }: &KeyedRow<'a>,
    entries: &HashMap<String, RecordEntry>,
) -> NewRecordEntry<'a> {
    let old = entries.get(&row.record_id).and_then(|entry| entry.row_key.clone());
    let state = if row.is_deleted { RecordState::Deleted } else { RecordState::Active };
    NewRecordEntry {
        record_id: &row.record_id,
        row_key: key.as_deref().map(|key| key_text(table, key)).or(old),
        built_hash: &row.payload_hash,
        state,
    }
}

/// A key as it is stored: the table, and the columns with their values.
type StoredKey<'a> = BTreeMap<String, BTreeMap<&'a str, Cow<'a, str>>>;

/// Returns the columns of the primary key, spelled as the database spells them.
fn key_columns(table: &TargetTable) -> impl Iterator<Item = &str> {
    table.primary_key.iter().map(|name| table.column(name).map_or(name.as_str(), |column| &column.name))
}

/// Returns a key as it is stored: a JSON object, such as `{"public.orders":{"id":"5"}}`.
fn key_text(table: &TargetTable, key: &[String]) -> String {
    let values = key_columns(table).zip(key.iter().map(|value| Cow::Borrowed(value.as_str()))).collect();
    serde_json::to_string(&StoredKey::from([(table.name.to_string(), values)])).unwrap_or_default()
}

/// Reads a stored key. `None` if it belongs to another table or has other columns.
fn read_key(table: &TargetTable, text: &str) -> Option<Key> {
    let mut stored: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(text).ok()?;
    let mut values = stored.remove(&table.name.to_string())?;
    let key = key_columns(table).map(|name| values.remove(name)).collect::<Option<Key>>()?;
    values.is_empty().then_some(key)
}
