//! Pages: the raw rows that a page brings, and the ledger that remembers it.

use crate::codec::{At, Bare, Columns};
use crate::partitions::Place;
use crate::tx::{Conn, FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::feed::{Item, NAMELESS};
use tidemill_core::pace::{Pace, Scale};
use tidemill_core::page::Seen;
use uuid::Uuid;

/// One page, as the ledger remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRow {
    /// Where it began.
    pub offset: i32,
    /// What it was, to find out that the source gives the same page again.
    pub hash: Vec<u8>,
    /// The stones on it, in the feed's order.
    pub stone_ids: Vec<String>,
}

impl FromColumns for PageRow {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            offset: row.int("page_offset")?,
            hash: row.bytes("page_hash")?,
            stone_ids: row.words("stone_ids")?,
        })
    }
}

impl FromColumns for Seen {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let count = |column: &str| row.long(column).map(i64::unsigned_abs);
        Ok(Self {
            distinct: count("seen")?,
            distinct_in_pass: count("seen_in_pass")?,
            places: count("places")?,
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
    /// Keeps the records of a page, sorted by stone so that two pages never wait for each other; how many changed.
    pub async fn keep_records(
        &mut self,
        feed: &str,
        sync: Uuid,
        items: &[&Item],
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        if items.is_empty() {
            return Ok(0);
        }
        let failed = |source| Error::database("keep records", source);
        let (sql, now) = (self.sql(catalog::RAW_UPSERT), self.time(now));
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let ids: Vec<&str> = items.iter().map(|item| item.stone_id.as_str()).collect();
                let offers: Vec<Option<&str>> = items.iter().map(|item| item.offer_id.as_deref()).collect();
                let payloads: Vec<&str> = items.iter().map(|item| item.payload.as_str()).collect();
                let hashes: Vec<&[u8]> = items.iter().map(|item| item.payload_hash.as_slice()).collect();
                let query = sqlx::query(sql).bind(feed).bind(Bare(sync)).bind(ids).bind(offers);
                let query = query.bind(payloads).bind(hashes).bind(now).persistent(self.context.named);
                Ok(query.execute(&mut **conn).await.map_err(failed)?.rows_affected())
            }
            Conn::Sqlite(conn) => {
                let mut changed = 0;
                for item in items {
                    let query = sqlx::query(sqlx::AssertSqlSafe(sql.0.clone()))
                        .bind(feed)
                        .bind(Bare(sync))
                        .bind(item.stone_id.as_str())
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

    /// The pages before an offset, in the same pass, the last one first.
    pub async fn pages_before(&mut self, place: Place<'_>, limit: usize) -> Result<Vec<PageRow>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(
            self,
            catalog::PAGE_LAST,
            [Bare(place.run_id), place.partition, place.pass, place.offset, limit],
            fetch_all,
            "read pages"
        )?
        .records("read pages")
    }

    /// What a partition has seen, in the pass of a place and in all.
    pub async fn seen(&mut self, place: Place<'_>) -> Result<Seen, Error> {
        let found: Option<Seen> = on!(
            self,
            catalog::PAGE_SEEN,
            [Bare(place.run_id), place.partition, place.pass, NAMELESS],
            fetch_optional,
            "count records"
        )?
        .record("count records")?;
        Ok(found.unwrap_or_default())
    }

    /// Pages of a partition from an offset on.
    pub async fn pages_from(
        &mut self,
        sync: Uuid,
        partition: &str,
        offset: i32,
        limit: usize,
    ) -> Result<Vec<PageRow>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::PAGE_RANGE, [Bare(sync), partition, offset, limit], fetch_all, "read pages")?
            .records("read pages")
    }
}

impl Store {
    /// How many stones a sync stored, interval by interval.
    pub async fn pace(&self, sync: Uuid) -> Result<Pace, Error> {
        self.glance(move |mut tx| {
            Box::pin(async move {
                let Some(scale) = Scale::of(&tx.partitions(sync).await?) else { return Ok(Pace::default()) };
                let binds = (At(scale.from), scale.interval_secs, scale.points);
                let stored: Vec<Stored> = on!(
                    tx,
                    catalog::PAGE_PACE,
                    [Bare(sync), binds.0, binds.1, binds.2],
                    fetch_all,
                    "read the pace of a sync"
                )?
                .records("read the pace of a sync")?;
                Ok(scale.filled(stored.into_iter().map(|Stored(place, stored)| (place, stored))))
            })
        })
        .await
    }

    /// What a partition has seen, in the pass of a place and in all.
    pub async fn seen(&self, place: Place<'_>) -> Result<Seen, Error> {
        let (run_id, partition) = (place.run_id, place.partition.to_owned());
        let (offset, pass) = (place.offset, place.pass);
        self.read(move |mut tx| {
            Box::pin(async move { tx.seen(Place { run_id, partition: &partition, offset, pass }).await })
        })
        .await
    }
}

impl Tx<'_> {
    /// The time to bind: the caller's; where there is none, PostgreSQL's own clock tells it, and SQLite has none.
    pub(crate) fn time(&self, now: Option<Timestamp>) -> Option<At> {
        match &self.conn {
            Conn::Postgres(_) => now.map(At),
            Conn::Sqlite(_) => Some(At(self.moment(now))),
        }
    }
}
