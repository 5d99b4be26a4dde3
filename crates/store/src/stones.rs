//! Stones: unconsolidated records, the canonical table, and vanished stones.

use crate::codec::{Columns, SqlTextList};
use crate::tx::{Conn, FromColumns, Tx, on};
use crate::{Error, Store, catalog};
use tidemill_core::Timestamp;
use tidemill_core::diamond::Diamond;
use tidemill_core::pricing::PriceQuote;
use uuid::Uuid;

/// A raw record from which its canonical row was not built yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenStone {
    pub stone_id: String,
    pub payload: String,
    pub payload_hash: Vec<u8>,
}

/// Raw records, read up to a limit of bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenStones {
    pub read: Vec<OpenStone>,
    /// Ids of stones beyond the limit.
    pub left: Vec<String>,
    /// Total length of the payloads.
    pub bytes: usize,
}

/// A raw record, without its payload if it is beyond the limit.
struct OpenRow {
    stone_id: String,
    payload: Option<String>,
    payload_hash: Vec<u8>,
}

impl FromColumns for OpenRow {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            stone_id: row.text("supplier_stone_id")?,
            payload: row.text_or_null("payload")?,
            payload_hash: row.bytes("payload_hash")?,
        })
    }
}

/// A stone with its price, ready for the canonical table.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedStone {
    /// The stone, under the id of its raw record.
    pub stone: Diamond,
    pub priced: PriceQuote,
    /// Hash of the raw record.
    pub payload_hash: Vec<u8>,
}

/// Versions of the mapper and the rules that build canonical rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildVersions {
    pub mapper_version: i32,
    pub rules_version: i32,
}

/// Number of active stones of a feed, and of those that a sync has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnseenCounts {
    pub active: i64,
    pub unseen: i64,
}

impl FromColumns for UnseenCounts {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { active: row.long("active")?, unseen: row.long("unseen")? })
    }
}

/// A stone of the canonical table, with the columns that a proof compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofRow {
    pub stone_id: String,
    /// Hash of the raw record.
    pub payload_hash: Vec<u8>,
    pub feed_price: i64,
    pub retail_price: i64,
}

impl FromColumns for ProofRow {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            stone_id: row.text("supplier_stone_id")?,
            payload_hash: row.bytes("payload_hash")?,
            feed_price: row.long("feed_price_cents")?,
            retail_price: row.long("retail_price_cents")?,
        })
    }
}

/// Binds the columns of the canonical table in order: the values of one stone, or arrays over all stones.
macro_rules! bind_stone {
    ($query:expr, $each:ident) => {
        $query
            .bind($each!(s, s.stone.stone_id.as_str()))
            .bind($each!(s, s.stone.offer_id.as_deref()))
            .bind($each!(s, s.stone.shape.as_str()))
            .bind($each!(s, s.stone.points))
            .bind($each!(s, s.stone.color.as_deref()))
            .bind($each!(s, s.stone.clarity.as_deref()))
            .bind($each!(s, s.stone.cut.as_deref()))
            .bind($each!(s, s.stone.polish.as_deref()))
            .bind($each!(s, s.stone.symmetry.as_deref()))
            .bind($each!(s, s.stone.fluorescence.as_deref()))
            .bind($each!(s, s.stone.fancy_color.as_deref()))
            .bind($each!(s, s.stone.fancy_intensity.as_deref()))
            .bind($each!(s, s.stone.fancy_overtone.as_deref()))
            .bind($each!(s, s.stone.lab_grown))
            .bind($each!(s, s.stone.treated))
            .bind($each!(s, s.stone.ratio))
            .bind($each!(s, s.stone.availability.as_str()))
            .bind($each!(s, s.stone.raw_availability.as_deref()))
            .bind($each!(s, s.stone.hold_id.as_deref()))
            .bind($each!(s, s.stone.feed_price))
            .bind($each!(s, s.priced.price_per_carat))
            .bind($each!(s, s.priced.retail_price))
            .bind($each!(s, s.priced.markup))
            .bind($each!(s, s.priced.rating.map(i32::from)))
            .bind($each!(s, s.priced.rule_id))
            .bind($each!(s, s.stone.image_url.as_deref()))
            .bind($each!(s, s.stone.video_url.as_deref()))
            .bind($each!(s, s.stone.certificate_lab.as_deref()))
            .bind($each!(s, s.stone.certificate_number.as_deref()))
            .bind($each!(s, s.stone.certificate_url.as_deref()))
            .bind($each!(s, s.stone.table_pct))
            .bind($each!(s, s.stone.depth_pct))
            .bind($each!(s, s.stone.length_mm))
            .bind($each!(s, s.stone.width_mm))
            .bind($each!(s, s.stone.depth_mm))
            .bind($each!(s, s.stone.girdle.as_deref()))
            .bind($each!(s, s.stone.culet_size.as_deref()))
            .bind($each!(s, s.stone.eye_clean))
            .bind($each!(s, s.stone.supplier_name.as_deref()))
            .bind($each!(s, s.payload_hash.as_slice()))
    };
}

impl Tx<'_> {
    /// Returns those of the stones that are not consolidated, with payloads up to `bytes_max` bytes and at least one
    /// payload.
    pub async fn open_stones(
        &mut self,
        feed: &str,
        stones: Vec<String>,
        built: BuildVersions,
        bytes_max: usize,
    ) -> Result<OpenStones, Error> {
        let (stones, bytes_max) = (SqlTextList(stones), i64::try_from(bytes_max).unwrap_or(i64::MAX));
        let rows: Vec<OpenRow> = on!(
            self,
            catalog::STONE_OPEN,
            [feed, stones.clone(), built.mapper_version, built.rules_version, bytes_max],
            fetch_all,
            "read open stones"
        )?
        .records("read open stones")?;
        let mut open = OpenStones::default();
        for OpenRow { stone_id, payload, payload_hash } in rows {
            match payload {
                Some(payload) => {
                    open.bytes += payload.len();
                    open.read.push(OpenStone { stone_id, payload, payload_hash });
                }
                None => open.left.push(stone_id),
            }
        }
        Ok(open)
    }

    /// Returns the next stones of a feed, after one, that were built with other versions.
    pub async fn stale_stones(
        &mut self,
        feed: &str,
        after: &str,
        built: BuildVersions,
        limit: usize,
    ) -> Result<Vec<String>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(
            self,
            catalog::STONE_STALE,
            [feed, after, built.rules_version, built.mapper_version, limit],
            fetch_all,
            "read stones"
        )?
        .records("read stones")
    }

    /// Writes stones into the canonical table; returns how many rows changed.
    pub async fn upsert_stones(
        &mut self,
        feed: &str,
        stones: &[PricedStone],
        built: BuildVersions,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        if stones.is_empty() {
            return Ok(0);
        }
        let (sql, now) = (self.sql(catalog::DIAMOND_UPSERT), self.time(now));
        let failed = |source| Error::database("write stones", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                macro_rules! all {
                    ($s:ident, $value:expr) => {
                        stones.iter().map(|$s| $value).collect::<Vec<_>>()
                    };
                }
                let query = sqlx::query(sql).bind(feed).bind(built.mapper_version).bind(built.rules_version);
                let query = bind_stone!(query.bind(now), all).persistent(self.context.named);
                Ok(query.execute(&mut **conn).await.map_err(failed)?.rows_affected())
            }
            Conn::Sqlite(conn) => {
                let mut changed = 0;
                for stone in stones {
                    macro_rules! one {
                        ($s:ident, $value:expr) => {{
                            let $s = stone;
                            $value
                        }};
                    }
                    let query = sqlx::query(sqlx::AssertSqlSafe(sql.0.clone()))
                        .bind(feed)
                        .bind(built.mapper_version)
                        .bind(built.rules_version);
                    let query = bind_stone!(query.bind(now), one);
                    changed += query.execute(&mut **conn).await.map_err(failed)?.rows_affected();
                }
                Ok(changed)
            }
        }
    }

    /// Marks stones as deleted; returns how many were active.
    pub async fn delete_stones(
        &mut self,
        feed: &str,
        stones: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let (stones, now) = (SqlTextList(stones), self.time(now));
        let deleted =
            on!(self, catalog::STONE_DELETE, [feed, stones.clone(), now], execute, "delete stones")?;
        Ok(deleted.count())
    }
}

impl Store {
    /// Returns the next active stones of a feed, after one, for a proof.
    pub async fn proof_rows(
        &self,
        feed: String,
        after: String,
        limit: usize,
    ) -> Result<Vec<ProofRow>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let binds = (feed.as_str(), after.as_str());
                on!(tx, catalog::STONE_PROOF, [binds.0, binds.1, limit], fetch_all, "read stones")?
                    .records("read stones")
            })
        })
        .await
    }

    /// Counts the active stones of a feed that a sync has not seen.
    pub async fn count_unseen(&self, feed: String, sync: Uuid) -> Result<UnseenCounts, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let found = on!(
                    tx,
                    catalog::STONE_UNSEEN_COUNT,
                    [feed.as_str(), crate::codec::SqlUuid(sync)],
                    fetch_optional,
                    "count unseen stones"
                )?;
                Ok(found.record("count unseen stones")?.unwrap_or_default())
            })
        })
        .await
    }

    /// Returns those of the stones that are active.
    pub async fn active_stones(&self, feed: String, stones: Vec<String>) -> Result<Vec<String>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let binds = (feed.as_str(), SqlTextList(stones));
                on!(tx, catalog::STONE_ACTIVE, [binds.0, binds.1.clone()], fetch_all, "find stones")?
                    .records("find stones")
            })
        })
        .await
    }

    /// Counts the active stones of a feed.
    pub async fn count_active(&self, feed: String) -> Result<i64, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let found: Option<i64> =
                    on!(tx, catalog::STONE_ACTIVE_COUNT, [feed.as_str()], fetch_optional, "count stones")?
                        .record("count stones")?;
                Ok(found.unwrap_or(0))
            })
        })
        .await
    }

    /// Returns the next active stones of a feed, after one, that a sync has not seen.
    pub async fn unseen_after(
        &self,
        feed: String,
        sync: Uuid,
        after: String,
        limit: usize,
    ) -> Result<Vec<String>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                on!(
                    tx,
                    catalog::STONE_UNSEEN,
                    [feed.as_str(), crate::codec::SqlUuid(sync), after.as_str(), limit],
                    fetch_all,
                    "read unseen stones"
                )?
                .records("read unseen stones")
            })
        })
        .await
    }
}
