//! Raw records that are not consolidated yet.

use crate::codec::{Columns, SqlTextList};
use crate::tx::{FromColumns, Tx, on};
use crate::{Error, FeedTables, catalog};

/// A raw record from which its canonical row was not built yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRecord {
    pub record_id: String,
    pub payload: String,
    pub payload_hash: Vec<u8>,
}

/// Raw records, read up to a limit of bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenRecords {
    pub read: Vec<OpenRecord>,
    /// Ids of records beyond the limit.
    pub left: Vec<String>,
    /// Total length of the payloads.
    pub bytes: usize,
}

/// A raw record, without its payload if it is beyond the limit.
struct OpenRow {
    record_id: String,
    payload: Option<String>,
    payload_hash: Vec<u8>,
}

impl FromColumns for OpenRow {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            record_id: row.text("record_id")?,
            payload: row.text_or_null("payload")?,
            payload_hash: row.bytes("payload_hash")?,
        })
    }
}

/// Versions of the mapper and the rules that build canonical rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildVersions {
    pub mapper_version: i32,
    pub rules_version: i32,
}

impl Tx<'_> {
    /// Returns those of the records that are not consolidated, with payloads up to `bytes_max` bytes and at least one
    /// payload.
    pub async fn open_records(
        &mut self,
        tables: &FeedTables,
        records: Vec<String>,
        built: BuildVersions,
        bytes_max: usize,
    ) -> Result<OpenRecords, Error> {
        let (records, bytes_max) = (SqlTextList(records), i64::try_from(bytes_max).unwrap_or(i64::MAX));
        let (feed, raw) = (tables.feed.as_str(), &tables.raw);
        let rows = if tables.target.is_some() {
            on!(
                self,
                catalog::ROW_OPEN.of(raw),
                [feed, records.clone(), built.mapper_version, bytes_max],
                fetch_all,
                "read open records"
            )?
        } else {
            on!(
                self,
                catalog::RECORD_OPEN.of(raw),
                [feed, records.clone(), built.mapper_version, built.rules_version, bytes_max],
                fetch_all,
                "read open records"
            )?
        };
        let rows: Vec<OpenRow> = rows.records("read open records")?;
        let mut open = OpenRecords::default();
        for OpenRow { record_id, payload, payload_hash } in rows {
            match payload {
                Some(payload) => {
                    open.bytes += payload.len();
                    open.read.push(OpenRecord { record_id, payload, payload_hash });
                }
                None => open.left.push(record_id),
            }
        }
        Ok(open)
    }

    /// Returns the next records of a feed, after one, that were built with other versions. For rows of a definition,
    /// these are also the records that were never built: they were rejected.
    pub async fn stale_records(
        &mut self,
        tables: &FeedTables,
        after: &str,
        built: BuildVersions,
        limit: usize,
    ) -> Result<Vec<String>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (feed, raw) = (tables.feed.as_str(), &tables.raw);
        let rows = if tables.target.is_some() {
            on!(
                self,
                catalog::ROW_STALE.of(raw),
                [feed, after, built.mapper_version, limit],
                fetch_all,
                "read records"
            )?
        } else {
            on!(
                self,
                catalog::RECORD_STALE.of(raw),
                [feed, after, built.rules_version, built.mapper_version, limit],
                fetch_all,
                "read records"
            )?
        };
        rows.records("read records")
    }
}
