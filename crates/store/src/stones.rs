//! Stones: what is open, the canonical table, and what has vanished.

use crate::codec::{Columns, Words};
use crate::tx::{Conn, FromColumns, Tx, on};
use crate::{Error, Store, catalog};
use tidemill_core::Timestamp;
use tidemill_core::diamond::Diamond;
use tidemill_core::pricing::Priced;
use uuid::Uuid;

/// A raw record that its canonical row was not built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenStone {
    /// The stone.
    pub stone_id: String,
    /// The record.
    pub payload: String,
    /// Its hash.
    pub payload_hash: Vec<u8>,
}

/// Raw records that were read under a bound of bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenStones {
    /// Those that were read, sorted by stone.
    pub read: Vec<OpenStone>,
    /// The stones that were beyond the bound.
    pub left: Vec<String>,
    /// Bytes of the payloads that were read.
    pub bytes: usize,
}

/// A raw record, or its name where it was beyond the bound.
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
    /// The stone, under the name that its raw record has.
    pub stone: Diamond,
    /// Its price.
    pub priced: Priced,
    /// The hash of the record that it was built from.
    pub payload_hash: Vec<u8>,
}

/// What canonical rows are built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Built {
    /// The mapper's version.
    pub mapper_version: i32,
    /// The version of the rules.
    pub rules_version: i32,
}

/// The active stones of a feed, and how many of them a sync has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unseen {
    /// All of them.
    pub active: i64,
    /// Those that were not seen.
    pub unseen: i64,
}

impl FromColumns for Unseen {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { active: row.long("active")?, unseen: row.long("unseen")? })
    }
}

/// A stone of the canonical table, as far as a proof looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofRow {
    /// The stone.
    pub stone_id: String,
    /// The hash of the record that it was built from.
    pub payload_hash: Vec<u8>,
    /// What the feed asks.
    pub feed_price: i64,
    /// What it is sold for.
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

/// Binds the columns of the canonical table in their order: a value of each stone, or an array over all of them.
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
    /// Those of the named stones that are open, with their records up to so many bytes, and one record in any case.
    pub async fn open_stones(
        &mut self,
        feed: &str,
        stones: Vec<String>,
        built: Built,
        bytes_max: usize,
    ) -> Result<OpenStones, Error> {
        let (stones, bytes_max) = (Words(stones), i64::try_from(bytes_max).unwrap_or(i64::MAX));
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

    /// The next stones of a feed, after one, that were built with something else.
    pub async fn stale_stones(
        &mut self,
        feed: &str,
        after: &str,
        built: Built,
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

    /// Writes stones into the canonical table; how many rows changed.
    pub async fn upsert_stones(
        &mut self,
        feed: &str,
        stones: &[PricedStone],
        built: Built,
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

    /// Marks stones as deleted; how many were active.
    pub async fn delete_stones(
        &mut self,
        feed: &str,
        stones: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let (stones, now) = (Words(stones), self.time(now));
        let deleted =
            on!(self, catalog::STONE_DELETE, [feed, stones.clone(), now], execute, "delete stones")?;
        Ok(deleted.count())
    }
}

impl Store {
    /// The next active stones of a feed, after one, for a proof.
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

    /// How many active stones of a feed a sync has not seen.
    pub async fn unseen(&self, feed: String, sync: Uuid) -> Result<Unseen, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let found = on!(
                    tx,
                    catalog::STONE_UNSEEN_COUNT,
                    [feed.as_str(), crate::codec::Bare(sync)],
                    fetch_optional,
                    "count unseen stones"
                )?;
                Ok(found.record("count unseen stones")?.unwrap_or_default())
            })
        })
        .await
    }

    /// Those of the stones of a feed that are active.
    pub async fn active_stones(&self, feed: String, stones: Vec<String>) -> Result<Vec<String>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let binds = (feed.as_str(), Words(stones));
                on!(tx, catalog::STONE_ACTIVE, [binds.0, binds.1.clone()], fetch_all, "look for stones")?
                    .records("look for stones")
            })
        })
        .await
    }

    /// How many stones of a feed are active.
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

    /// The next active stones of a feed, after one, that a sync has not seen.
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
                    [feed.as_str(), crate::codec::Bare(sync), after.as_str(), limit],
                    fetch_all,
                    "read unseen stones"
                )?
                .records("read unseen stones")
            })
        })
        .await
    }
}
