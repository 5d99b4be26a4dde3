//! Pages of a feed: their raw records, and the log of pages already read.

use crate::codec::{Columns, SqlTime, SqlUuid};
use crate::partitions::PartitionPosition;
use crate::tx::{Conn, FromColumns, on};
use crate::{Error, FeedTables, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::absence::PassFacts;
use tidemill_core::feed::{Item, NAMELESS, RawTable};
use tidemill_core::pace::{Pace, Scale};
use tidemill_core::page::ReadCounts;
use uuid::Uuid;

/// A page in the log of pages already read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRow {
    /// Offset of its first record.
    pub offset: i32,
    /// Hash of the page, to detect a source that returns the same page twice.
    pub hash: Vec<u8>,
    /// Ids of its records, in feed order.
    pub record_ids: Vec<String>,
}

impl FromColumns for PageRow {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            offset: row.int("page_offset")?,
            hash: row.bytes("page_hash")?,
            record_ids: row.words("record_ids")?,
        })
    }
}

/// Findings of a pass over a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassRecord {
    pub facts: PassFacts,
    /// The source's time of the count before the first page.
    pub counted_at: Option<Timestamp>,
}

impl FromColumns for PassRecord {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let facts = PassFacts {
            pages: row.long("pages")?.unsigned_abs(),
            is_linked: row.truth("linked")?,
            before: row.long_or_null("counted")?.map(i64::unsigned_abs),
            ..PassFacts::default()
        };
        Ok(Self { facts, counted_at: row.time_or_null("counted_at")? })
    }
}

impl FromColumns for ReadCounts {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let count = |column: &str| row.long(column).map(i64::unsigned_abs);
        Ok(Self {
            distinct: count("seen")?,
            distinct_in_pass: count("seen_in_pass")?,
            positions: count("places")?,
            nameless: count("nameless")?,
        })
    }
}

struct Stored(i64, i64);

impl FromColumns for Stored {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.long("place")?, row.long("stored")?))
    }
}

impl Tx<'_> {
    /// Stores the records of a page; returns how many changed. They must be sorted by id, so that two pages cannot
    /// deadlock.
    pub async fn store_records(
        &mut self,
        tables: &FeedTables,
        sync: Uuid,
        items: &[&Item],
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        self.store_raw(&tables.raw, sync, items, now).await
    }

    pub(crate) async fn store_raw(
        &mut self,
        raw: &RawTable,
        sync: Uuid,
        items: &[&Item],
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        if items.is_empty() {
            return Ok(0);
        }
        let failed = |source| Error::database("store records", source);
        let (sql, now) = (self.sql(catalog::RAW_UPSERT.of(raw)), self.time(now));
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let ids: Vec<&str> = items.iter().map(|item| item.record_id.as_str()).collect();
                let offers: Vec<Option<&str>> = items.iter().map(|item| item.offer_id.as_deref()).collect();
                let payloads: Vec<&str> = items.iter().map(|item| item.payload.as_str()).collect();
                let hashes: Vec<&[u8]> = items.iter().map(|item| item.payload_hash.as_slice()).collect();
                let query = sqlx::query(sql).bind(SqlUuid(sync)).bind(ids).bind(offers);
                let query = query.bind(payloads).bind(hashes).bind(now).persistent(self.context.named);
                Ok(query.execute(&mut **conn).await.map_err(failed)?.rows_affected())
            }
            Conn::Sqlite(conn) => {
                let mut changed = 0;
                for item in items {
                    let query = sqlx::query(sqlx::AssertSqlSafe(sql.0.clone()))
                        .bind(SqlUuid(sync))
                        .bind(item.record_id.as_str())
                        .bind(item.offer_id.as_deref())
                        .bind(item.payload.as_str())
                        .bind(item.payload_hash.as_slice())
                        .bind(now);
                    changed += query.execute(&mut **conn).await.map_err(failed)?.rows_affected();
                }
                Ok(changed)
            }
        }
    }

    /// Returns pages before an offset in the same pass, latest first.
    pub async fn pages_before(
        &mut self,
        position: PartitionPosition<'_>,
        limit: usize,
    ) -> Result<Vec<PageRow>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(
            self,
            catalog::PAGE_LAST,
            [SqlUuid(position.run_id), position.partition, position.pass, position.offset, limit],
            fetch_all,
            "read pages"
        )?
        .records("read pages")
    }

    /// Returns what the current pass over a partition has found so far.
    pub async fn read_pass(&mut self, position: PartitionPosition<'_>) -> Result<PassRecord, Error> {
        let read = self.count_read(position).await?;
        let found: Option<PassRecord> = on!(
            self,
            catalog::PARTITION_PASS,
            [SqlUuid(position.run_id), position.partition, position.pass],
            fetch_optional,
            "read a pass"
        )?
        .record("read a pass")?;
        let found = found.unwrap_or_default();
        Ok(PassRecord { facts: PassFacts { read, ..found.facts }, ..found })
    }

    /// Counts the records that a partition has read, in this pass and in all.
    pub async fn count_read(&mut self, position: PartitionPosition<'_>) -> Result<ReadCounts, Error> {
        let found: Option<ReadCounts> = on!(
            self,
            catalog::PAGE_SEEN,
            [SqlUuid(position.run_id), position.partition, position.pass, NAMELESS],
            fetch_optional,
            "count records"
        )?
        .record("count records")?;
        Ok(found.unwrap_or_default())
    }

    /// Returns pages of a partition from an offset.
    pub async fn pages_from(
        &mut self,
        sync: Uuid,
        partition: &str,
        offset: i32,
        limit: usize,
    ) -> Result<Vec<PageRow>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::PAGE_RANGE, [SqlUuid(sync), partition, offset, limit], fetch_all, "read pages")?
            .records("read pages")
    }
}

impl Store {
    /// Returns the number of records that a sync stored in each interval.
    pub async fn pace(&self, sync: Uuid) -> Result<Pace, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                let Some(scale) = Scale::of(&tx.partitions(sync).await?) else { return Ok(Pace::default()) };
                let binds = (SqlTime(scale.from), scale.interval_secs, scale.points);
                let stored: Vec<Stored> = on!(
                    tx,
                    catalog::PAGE_PACE,
                    [SqlUuid(sync), binds.0, binds.1, binds.2],
                    fetch_all,
                    "read the pace of a sync"
                )?
                .records("read the pace of a sync")?;
                Ok(scale.filled(stored.into_iter().map(|Stored(position, stored)| (position, stored))))
            })
        })
        .await
    }

    /// Returns the records on the first pages of up to `partitions` partitions of a sync.
    pub async fn first_records(&self, sync: Uuid, partitions: usize) -> Result<Vec<String>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let mut records = Vec::new();
                let all = tx.partitions(sync).await?;
                for partition in all.iter().filter(|partition| partition.next_offset > 0).take(partitions) {
                    for page in tx.pages_from(sync, &partition.partition_id, 0, 1).await? {
                        records.extend(page.record_ids);
                    }
                }
                Ok(records)
            })
        })
        .await
    }

    /// Counts the records that a partition has read, in this pass and in all.
    /// Counts the records that a sync has read.
    pub async fn count_distinct(&self, sync: Uuid) -> Result<u64, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let binds = (SqlUuid(sync), NAMELESS);
                let counted: Option<i64> =
                    on!(tx, catalog::PAGE_DISTINCT, [binds.0, binds.1], fetch_optional, "count records")?
                        .record("count records")?;
                Ok(counted.unwrap_or(0).unsigned_abs())
            })
        })
        .await
    }

    pub async fn read_pass(&self, position: PartitionPosition<'_>) -> Result<PassRecord, Error> {
        let (run_id, partition) = (position.run_id, position.partition.to_owned());
        let (offset, pass) = (position.offset, position.pass);
        self.read(move |mut tx| {
            Box::pin(async move {
                tx.read_pass(PartitionPosition { run_id, partition: &partition, offset, pass }).await
            })
        })
        .await
    }
}

impl Tx<'_> {
    /// Returns the time to bind. Without one from the caller, PostgreSQL uses its own clock and SQLite the host's.
    pub(crate) fn time(&self, now: Option<Timestamp>) -> Option<SqlTime> {
        match &self.conn {
            Conn::Postgres(_) => now.map(SqlTime),
            Conn::Sqlite(_) => Some(SqlTime(self.moment(now))),
        }
    }
}
