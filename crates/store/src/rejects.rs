//! What is not in the canonical table: rejected rows, and gaps that the watermark passed.

use crate::codec::{At, Bare, Columns, Words};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::feed::PriceRange;
use tidemill_core::records::{Gap, Reject, Stage};
use uuid::Uuid;

impl FromColumns for Reject {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            feed: row.text("feed")?,
            stone_id: row.text("supplier_stone_id")?,
            run_id: row.uuid("run_id")?,
            partition_id: row.text_or_null("partition_id")?,
            stage: row.parsed("stage")?,
            reason: row.text("reason")?,
            payload: row.text("payload")?,
            times: row.int("times")?,
            first_at: row.time("first_at")?,
            last_at: row.time("last_at")?,
        })
    }
}

impl FromColumns for Gap {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            gap_id: row.long("gap_id")?,
            feed: row.text("feed")?,
            prices: PriceRange { from: row.long("price_from")?, to: row.long("price_to")? },
            updated_from: row.time_or_null("updated_from")?,
            updated_to: row.time("updated_to")?,
            left_by: row.uuid("left_by")?,
            reason: row.text("reason")?,
            created_at: row.time("created_at")?,
            closed_by: row.uuid_or_null("closed_by")?,
            closed_at: row.time_or_null("closed_at")?,
        })
    }
}

/// A record that is being rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReject {
    /// The stone, or where it stood.
    pub stone_id: String,
    /// Where it was rejected.
    pub stage: Stage,
    /// Why.
    pub reason: String,
    /// The record.
    pub payload: String,
}

/// Which rejected rows to list; what is not named does not matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RejectFilter {
    /// Of this feed.
    pub feed: Option<String>,
    /// Of the feeds of this project.
    pub project: Option<String>,
    /// After this one: the last one of the page before.
    pub after: Option<RejectPlace>,
    /// At most so many.
    pub limit: usize,
}

/// Which gaps to list; what is not named does not matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GapFilter {
    /// Of this feed.
    pub feed: Option<String>,
    /// The closed ones too.
    pub closed: bool,
    /// Of the feeds of this project.
    pub project: Option<String>,
    /// After the one with this number: the last one of the page before.
    pub after: i64,
    /// At most so many.
    pub limit: usize,
}

/// A place in the list of rejected rows.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectPlace {
    /// When the last one that was seen was last met.
    pub last_at: Timestamp,
    /// Its feed.
    pub feed: String,
    /// Its stone.
    pub stone_id: String,
}

/// Bytes of a rejected record that are kept.
const PAYLOAD_KEPT: usize = 8 * 1024;

impl Tx<'_> {
    /// Keeps a record that could not be used, with its reason.
    pub async fn reject(
        &mut self,
        feed: &str,
        sync: Uuid,
        partition: Option<&str>,
        reject: &NewReject,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        // Neither database holds a NUL in a text.
        let payload = cut(&reject.payload.replace('\0', "\u{fffd}"), PAYLOAD_KEPT);
        let reason = cut(&reject.reason.replace('\0', "\u{fffd}"), 1024);
        let stone = cut(&reject.stone_id.replace('\0', "\u{fffd}"), 1024);
        on!(
            self,
            catalog::REJECT_PUT,
            [
                feed,
                stone.as_str(),
                Bare(sync),
                partition,
                reject.stage.as_str(),
                reason.as_str(),
                payload.as_str(),
                now,
            ],
            execute,
            "keep a rejected row"
        )?;
        Ok(())
    }

    /// Forgets the rejections of stones that are in the canonical table as their records say. `seen_by` is the sync
    /// that has met them anew: what earlier ones could not read or store, it could.
    pub async fn accept(
        &mut self,
        feed: &str,
        stones: Vec<String>,
        seen_by: Option<Uuid>,
    ) -> Result<u64, Error> {
        let (stones, sync) = (Words(stones), seen_by.map(Bare));
        let gone =
            on!(self, catalog::REJECT_CLEAR, [feed, stones.clone(), sync], execute, "forget rejected rows")?;
        Ok(gone.count())
    }

    /// Writes a gap for every failed partition of a sync; how many.
    pub async fn leave_gaps(&mut self, sync: Uuid, now: Option<Timestamp>) -> Result<u64, Error> {
        let now = self.time(now);
        let left = on!(self, catalog::GAP_ADD, [Bare(sync), now], execute, "leave gaps")?;
        Ok(left.count())
    }

    /// Closes the gaps that a sync has covered; how many.
    pub async fn close_gaps(&mut self, sync: Uuid, now: Option<Timestamp>) -> Result<u64, Error> {
        let now = self.time(now);
        let closed = on!(self, catalog::GAP_CLOSE, [Bare(sync), now], execute, "close gaps")?;
        Ok(closed.count())
    }

    /// The gaps of a feed, or of all; the closed ones too where asked.
    pub async fn gaps(&mut self, feed: Option<&str>, closed: bool) -> Result<Vec<Gap>, Error> {
        on!(self, catalog::GAP_LIST, [feed, closed], fetch_all, "list gaps")?.records("list gaps")
    }
}

impl Store {
    /// Rejected rows of a feed, or of all, newest first.
    pub async fn rejects(&self, feed: Option<String>, limit: usize) -> Result<Vec<Reject>, Error> {
        self.list_rejects(RejectFilter { feed, limit, ..RejectFilter::default() }).await
    }

    /// Rejected rows that a filter lets through, newest first.
    pub async fn list_rejects(&self, filter: RejectFilter) -> Result<Vec<Reject>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
                let after = filter.after.as_ref();
                Ok(on!(
                    tx,
                    catalog::REJECT_LIST,
                    [
                        filter.feed.as_deref(),
                        limit,
                        filter.project.as_deref(),
                        after.map(|after| At(after.last_at)),
                        after.map(|after| after.feed.as_str()),
                        after.map(|after| after.stone_id.as_str()),
                    ],
                    fetch_all,
                    "list rejected rows"
                )?
                .readable("rejected_rows", "supplier_stone_id"))
            })
        })
        .await
    }

    /// The gaps of a feed, or of all; the closed ones too where asked.
    pub async fn gaps(&self, feed: Option<String>, closed: bool) -> Result<Vec<Gap>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.gaps(feed.as_deref(), closed).await })).await
    }

    /// Gaps that a filter lets through, the oldest first.
    pub async fn list_gaps(&self, filter: GapFilter) -> Result<Vec<Gap>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
                Ok(on!(
                    tx,
                    catalog::GAP_PAGE,
                    [filter.feed.as_deref(), filter.closed, filter.project.as_deref(), filter.after, limit],
                    fetch_all,
                    "list gaps"
                )?
                .readable("gaps", "gap_id"))
            })
        })
        .await
    }
}

/// The beginning of a text, at most so many bytes.
fn cut(text: &str, bytes: usize) -> String {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
