//! The canonical table `diamonds`: writes and deletions.

use crate::codec::{Columns, SqlTextList};
use crate::tx::{Conn, FromColumns, Tx, on};
use crate::{BuildVersions, Error, Store, catalog};
use tidemill_core::Timestamp;
use tidemill_core::diamond::Diamond;
use tidemill_core::pricing::PriceQuote;

/// A diamond with its price, ready for the canonical table.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedDiamond {
    /// The diamond, under the id of its raw record.
    pub stone: Diamond,
    pub priced: PriceQuote,
    /// Hash of the raw record.
    pub payload_hash: Vec<u8>,
}

/// A diamond of the canonical table, with the columns that a proof compares.
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

/// Binds the columns of the canonical table in order: the values of one diamond, or arrays over all diamonds.
macro_rules! bind_diamond {
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
    /// Writes diamonds into the canonical table; returns how many rows changed.
    pub async fn upsert_diamonds(
        &mut self,
        feed: &str,
        diamonds: &[PricedDiamond],
        built: BuildVersions,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        if diamonds.is_empty() {
            return Ok(0);
        }
        let (sql, now) = (self.sql(catalog::DIAMOND_UPSERT), self.time(now));
        let failed = |source| Error::database("write diamonds", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                macro_rules! all {
                    ($s:ident, $value:expr) => {
                        diamonds.iter().map(|$s| $value).collect::<Vec<_>>()
                    };
                }
                let query = sqlx::query(sql).bind(feed).bind(built.mapper_version).bind(built.rules_version);
                let query = bind_diamond!(query.bind(now), all).persistent(self.context.named);
                Ok(query.execute(&mut **conn).await.map_err(failed)?.rows_affected())
            }
            Conn::Sqlite(conn) => {
                let mut changed = 0;
                for diamond in diamonds {
                    macro_rules! one {
                        ($s:ident, $value:expr) => {{
                            let $s = diamond;
                            $value
                        }};
                    }
                    let query = sqlx::query(sqlx::AssertSqlSafe(sql.0.clone()))
                        .bind(feed)
                        .bind(built.mapper_version)
                        .bind(built.rules_version);
                    let query = bind_diamond!(query.bind(now), one);
                    changed += query.execute(&mut **conn).await.map_err(failed)?.rows_affected();
                }
                Ok(changed)
            }
        }
    }

    /// Marks diamonds as deleted; returns how many were active.
    pub(crate) async fn delete_diamonds(
        &mut self,
        feed: &str,
        diamonds: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let (diamonds, now) = (SqlTextList(diamonds), self.time(now));
        let deleted =
            on!(self, catalog::DIAMOND_DELETE, [feed, diamonds.clone(), now], execute, "delete diamonds")?;
        Ok(deleted.count())
    }
}

impl Store {
    /// Returns the next active diamonds of a feed, after one, for a proof.
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
                on!(tx, catalog::DIAMOND_PROOF, [binds.0, binds.1, limit], fetch_all, "read diamonds")?
                    .records("read diamonds")
            })
        })
        .await
    }
}
