//! Records missing from the canonical table: rejected records, and gaps that the watermark passed.

use crate::codec::{Columns, SqlTextList, SqlTime, SqlUuid};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::feed::FieldRange;
use tidemill_core::records::{Gap, Reject, Stage};
use uuid::Uuid;

impl FromColumns for Reject {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            feed: row.text("feed")?,
            record_id: row.text("record_id")?,
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
            range: FieldRange { from: row.long("range_from")?, to: row.long("range_to")? },
            updated_from: row.watermark_or_null("updated_from")?,
            updated_to: row.time("updated_to")?,
            left_by: row.uuid("left_by")?,
            reason: row.text("reason")?,
            created_at: row.time("created_at")?,
            closed_by: row.uuid_or_null("closed_by")?,
            closed_at: row.time_or_null("closed_at")?,
        })
    }
}

/// The content of a record to reject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReject {
    /// Id of the record, or its position if it has no id.
    pub record_id: String,
    pub stage: Stage,
    pub reason: String,
    pub payload: String,
}

/// A rejected record whose row a unique key of the table refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueRefusal {
    pub record_id: String,
    /// Last sync that rejected it.
    pub run_id: Uuid,
    /// Partition of that sync.
    pub partition_id: Option<String>,
}

impl FromColumns for UniqueRefusal {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            record_id: row.text("record_id")?,
            run_id: row.uuid("run_id")?,
            partition_id: row.text_or_null("partition_id")?,
        })
    }
}

/// Which rejected records to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RejectFilter {
    pub feed: Option<String>,
    /// Restricts the list to feeds of this project.
    pub project: Option<String>,
    /// Last record of the previous page.
    pub after: Option<RejectPosition>,
    pub limit: usize,
}

/// Which gaps to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GapFilter {
    pub feed: Option<String>,
    pub closed: bool,
    /// Restricts the list to feeds of this project.
    pub project: Option<String>,
    /// Id of the last gap of the previous page.
    pub after: i64,
    pub limit: usize,
}

/// A position in the list of rejected records.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectPosition {
    /// Time of the last rejection of that record.
    pub last_at: Timestamp,
    pub feed: String,
    pub record_id: String,
}

/// Maximum length of a stored payload in bytes.
const PAYLOAD_KEPT: usize = 8 * 1024;

impl Tx<'_> {
    /// Stores a rejected record with its reason.
    pub async fn reject(
        &mut self,
        feed: &str,
        sync: Uuid,
        partition: Option<&str>,
        reject: &NewReject,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        // Neither database can store a NUL character in a text.
        let payload = cut(&reject.payload.replace('\0', "\u{fffd}"), PAYLOAD_KEPT);
        let reason = cut(&reject.reason.replace('\0', "\u{fffd}"), 1024);
        let record_id = stored_id(&reject.record_id);
        on!(
            self,
            catalog::REJECT_PUT,
            [
                feed,
                record_id.as_str(),
                SqlUuid(sync),
                partition,
                reject.stage.as_str(),
                reason.as_str(),
                payload.as_str(),
                now,
            ],
            execute,
            "store a rejected record"
        )?;
        Ok(())
    }

    /// Marks rejected records whose row a unique key of the table refused.
    pub async fn mark_unique_refusals(&mut self, feed: &str, records: Vec<String>) -> Result<(), Error> {
        let records = SqlTextList(records);
        on!(self, catalog::REJECT_UNIQUE_MARK, [feed, records.clone()], execute, "store a rejected record")?;
        Ok(())
    }

    /// Returns the last rejected records whose row a unique key refused. `full_sync` is a sync that has read all
    /// records of the source: the marks of records that it did not read are removed.
    pub async fn unique_refusals(
        &mut self,
        feed: &str,
        full_sync: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<UniqueRefusal>, Error> {
        if let Some(sync) = full_sync {
            let binds = (feed, SqlUuid(sync));
            on!(self, catalog::REJECT_UNIQUE_FORGET, [binds.0, binds.1], execute, "read rejected records")?;
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::REJECT_UNIQUE_LIST, [feed, limit], fetch_all, "read rejected records")?
            .records("read rejected records")
    }

    /// Counts the rejected records whose row a unique key refused.
    pub async fn count_unique_refusals(&mut self, feed: &str) -> Result<i64, Error> {
        let found =
            on!(self, catalog::REJECT_UNIQUE_COUNT, [feed], fetch_optional, "count rejected records")?;
        Ok(found.record("count rejected records")?.unwrap_or(0))
    }

    /// Adds to the reasons of rejected records what a user can do about them.
    pub async fn add_advice(&mut self, feed: &str, records: Vec<String>, advice: &str) -> Result<(), Error> {
        let records = SqlTextList(records);
        on!(self, catalog::REJECT_ADVICE, [feed, records.clone(), advice], execute, "explain rejections")?;
        Ok(())
    }

    /// Deletes the rejections of records whose canonical rows are up to date. `seen_by` is the sync that read them
    /// again and could store them.
    pub async fn accept(
        &mut self,
        feed: &str,
        records: Vec<String>,
        seen_by: Option<Uuid>,
    ) -> Result<u64, Error> {
        let (records, sync) = (SqlTextList(records), seen_by.map(SqlUuid));
        let removed = on!(
            self,
            catalog::REJECT_CLEAR,
            [feed, records.clone(), sync],
            execute,
            "delete rejected records"
        )?;
        Ok(removed.count())
    }

    /// Writes a gap for every failed partition of a sync; returns how many.
    pub async fn add_gaps(&mut self, sync: Uuid, now: Option<Timestamp>) -> Result<u64, Error> {
        let now = self.time(now);
        let left = on!(self, catalog::GAP_ADD, [SqlUuid(sync), now], execute, "write gaps")?;
        Ok(left.count())
    }

    /// Closes the gaps that a sync has covered; returns how many.
    pub async fn close_gaps(&mut self, sync: Uuid, now: Option<Timestamp>) -> Result<u64, Error> {
        let now = self.time(now);
        let closed = on!(self, catalog::GAP_CLOSE, [SqlUuid(sync), now], execute, "close gaps")?;
        Ok(closed.count())
    }

    /// Returns the gaps of a feed, or of all.
    pub async fn gaps(&mut self, feed: Option<&str>, closed: bool) -> Result<Vec<Gap>, Error> {
        on!(self, catalog::GAP_LIST, [feed, closed], fetch_all, "list gaps")?.records("list gaps")
    }
}

impl Store {
    /// Returns rejected records of a feed, or of all, newest first.
    pub async fn rejects(&self, feed: Option<String>, limit: usize) -> Result<Vec<Reject>, Error> {
        self.list_rejects(RejectFilter { feed, limit, ..RejectFilter::default() }).await
    }

    /// Lists rejected records, newest first.
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
                        after.map(|after| SqlTime(after.last_at)),
                        after.map(|after| after.feed.as_str()),
                        after.map(|after| after.record_id.as_str()),
                    ],
                    fetch_all,
                    "list rejected rows"
                )?
                .readable("rejected_rows", "record_id"))
            })
        })
        .await
    }

    /// Returns the gaps of a feed, or of all.
    pub async fn gaps(&self, feed: Option<String>, closed: bool) -> Result<Vec<Gap>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.gaps(feed.as_deref(), closed).await })).await
    }

    /// Lists gaps, oldest first.
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

/// Returns the id under which a rejected record is stored.
pub(crate) fn stored_id(record_id: &str) -> String {
    cut(&record_id.replace('\0', "\u{fffd}"), 1024)
}

/// Returns the beginning of a text, up to this many bytes.
fn cut(text: &str, bytes: usize) -> String {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
