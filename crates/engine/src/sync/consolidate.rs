//! Consolidation: maps and prices batches of pages and writes them to the canonical table, partition by partition.
//!
//! A batch is one transaction that locks its partition, so two replicas never process the same pages, and a replica
//! that dies leaves nothing behind. Whether a record is open is derived from its row, so a repeated batch writes
//! nothing.

use super::Syncs;
use super::circuit::{FeedAccessError, FeedWait};
use super::evaluate::recovered;
use super::plan::record_event;
use crate::trace::of_sync;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidemill_core::Timestamp;
use tidemill_core::batch_size::BatchSize;
use tidemill_core::event::Level;
use tidemill_core::feed::RunType;
use tidemill_core::limits::READ_BYTES_MAX;
use tidemill_core::pricing::Rules;
use tidemill_core::queue::Receipt;
use tidemill_core::records::{Stage, Sync, WatermarkChange};
use tidemill_core::run::{ChangeOutcome, EndCause, RunState};
use tidemill_core::sync::SyncState;
use tidemill_feeds::Feed as Source;
use tidemill_store::{BuildVersions, Error, NewReject, OpenRecord, PageRow, PricedStone, RefusalCode, Tx};
use tracing::Instrument as _;
use uuid::Uuid;

/// Context of one consolidation.
#[derive(Clone)]
pub(super) struct ConsolidationContext {
    pub(super) sync: Uuid,
    pub(super) trace: String,
    pub(super) feed: String,
    pub(super) source: Arc<dyn Source>,
    pub(super) rules: Arc<Rules>,
    pub(super) built: BuildVersions,
    /// Records how long this consolidation waits for the feed.
    pub(super) wait: Arc<FeedWait>,
}

/// Splits the pages of a batch into portions of whole pages. A portion is limited in records and bytes, but has at
/// least one page.
struct BatchCursor<'a> {
    pages: &'a [PageRow],
    /// End of the partition.
    end: i32,
    records_max: usize,
    /// Records in the portions so far.
    done: BTreeSet<String>,
    /// End of the pages in the portions so far.
    to: i32,
    bytes: usize,
    batch_size: BatchSize,
    /// Number of records in the last portion.
    given: usize,
}

impl<'a> BatchCursor<'a> {
    fn new(pages: &'a [PageRow], end: i32, records_max: usize) -> Self {
        let (done, batch_size) = (BTreeSet::new(), BatchSize::default());
        Self { pages, end, records_max, done, to: end, bytes: 0, batch_size, given: 0 }
    }

    /// Returns the records of the next portion; `None` if the batch is full or no page is left.
    fn next_ids(&mut self) -> Option<Vec<String>> {
        let mut ids = Vec::new();
        let left = READ_BYTES_MAX.saturating_sub(self.bytes);
        let records = self.batch_size.next(left).min(self.records_max.saturating_sub(self.done.len()));
        while let [page, rest @ ..] = self.pages
            && (self.done.is_empty() || ids.len() + page.record_ids.len() <= records)
        {
            ids.extend(page.record_ids.iter().filter(|id| self.done.insert((*id).clone())).cloned());
            self.to = rest.first().map_or(self.end, |next| next.offset);
            self.pages = rest;
        }
        self.given = ids.len();
        (!ids.is_empty()).then_some(ids)
    }

    /// Records the size of the last portion in bytes.
    fn learn(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.batch_size.record(self.given, bytes);
    }
}

/// Counts of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct WriteCounts {
    pub(super) rejected: usize,
    /// Bytes of the records that were read.
    pub(super) bytes: usize,
}

/// Outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    /// Some pages were consolidated.
    Done {
        /// Number of records on the pages.
        records_read: usize,
        /// Number of rejected records.
        rejected: usize,
    },
    /// No partition has open pages that are not locked by other replicas; or the sync was stopped or got other rules.
    Nothing,
}

impl Syncs {
    /// Creates the context of a sync: its feed and its pinned rules.
    pub(super) async fn context(&self, sync: &Sync) -> Result<ConsolidationContext, ConsolidationSetupError> {
        let record = self.engine.store().feed(sync.feed.clone()).await?;
        let source = self.open_feed(&record.feed).await.map_err(|error| match error {
            FeedAccessError::Store(error) => ConsolidationSetupError::Store(error),
            FeedAccessError::Feed(_)
            | FeedAccessError::GivenUp { .. }
            | FeedAccessError::Down { .. }
            | FeedAccessError::Stopped
            | FeedAccessError::Cancelled => ConsolidationSetupError::Refused(error.to_string()),
        })?;
        let version = sync.rules_version.unwrap_or_default();
        let rules = self.pinned(version).await?;
        let built = BuildVersions { mapper_version: source.mapper_version(), rules_version: version };
        Ok(ConsolidationContext {
            sync: sync.run_id,
            trace: sync.trace_id.clone(),
            feed: sync.feed.clone(),
            source,
            rules: Arc::new(rules),
            built,
            wait: Arc::default(),
        })
    }

    /// Reads the rules of a version.
    pub(super) async fn pinned(&self, version: i32) -> Result<Rules, Error> {
        let rules = self.engine.store().pinned_rules(version).await?;
        Ok(Rules::new(rules))
    }

    /// Consolidates the next pages of a partition in one transaction.
    pub(super) async fn consolidate_batch(
        &self,
        context: &ConsolidationContext,
    ) -> Result<BatchOutcome, Error> {
        let span = of_sync!("batch", context.trace, context.sync);
        let batch = self.write_batch(context).instrument(span).await?;
        if let BatchOutcome::Done { records_read, rejected } = &batch {
            let count = |name: &'static str, by: usize| {
                metrics::counter!(name, "feed" => context.feed.clone()).increment(by as u64);
            };
            count("tidemill_consolidation_batches_total", 1);
            count("tidemill_consolidated_records_total", records_read.saturating_sub(*rejected));
            count("tidemill_rejected_records_total", *rejected);
        }
        Ok(batch)
    }

    async fn write_batch(&self, context: &ConsolidationContext) -> Result<BatchOutcome, Error> {
        let (context, settings, now) = (context.clone(), self.settings.clone(), self.now());
        // SQLite has a single writer: shorter batches let other writers in.
        let records =
            if self.engine.store().is_postgres() { settings.batch } else { settings.batch.min(500) };
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.limit_idle(IDLE_SECS).await?;
                    let Some(partition) = tx.open_partition(context.sync).await? else {
                        return Ok(BatchOutcome::Nothing);
                    };
                    // Read while the partition is locked: a transaction that pins other rules waits for that lock.
                    if !context.fits(tx.sync(context.sync).await?.as_ref()) {
                        return Ok(BatchOutcome::Nothing);
                    }
                    let from = partition.consolidated_to;
                    let pages = tx.pages_from(context.sync, &partition.partition_id, from, records).await?;
                    let mut cursor = BatchCursor::new(&pages, partition.next_offset, records);
                    let mut rejected = 0;
                    while let Some(ids) = cursor.next_ids() {
                        let written = context.write_open(&mut tx, ids, settings.upsert, now).await?;
                        rejected += written.rejected;
                        cursor.learn(written.bytes);
                    }
                    let (records_read, to) = (cursor.done.len(), cursor.to);
                    let (name, int) = (&partition.partition_id, |n| i64::try_from(n).unwrap_or(i64::MAX));
                    let counted = (int(records_read), int(rejected));
                    tx.consolidate_partition(context.sync, name, from, to, counted.0, counted.1).await?;
                    Ok(BatchOutcome::Done { records_read, rejected })
                })
            })
            .await
    }

    /// Completes a sync: its state, the watermark, the gaps, the run and the message are one commit.
    pub(super) async fn complete(&self, id: Uuid, receipt: &Receipt) -> Result<bool, Error> {
        let (receipt, now) = (receipt.clone(), self.now());
        let completed = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(found) = tx.sync(id).await? else { return Ok(None) };
                    tx.lock_run(&found.ops_run_id).await?;
                    let Some(sync) = tx.lock_sync(id).await? else { return Ok(None) };
                    let counts = tx.count_partitions(id).await?;
                    if sync.state != SyncState::Consolidating || counts.unconsolidated > 0 {
                        return Ok(None);
                    }
                    match tx.complete_messages(std::slice::from_ref(&receipt), now).await?.first() {
                        Some(ChangeOutcome::Applied) => {}
                        _ => {
                            return Err(Error::refused(
                                RefusalCode::Stale,
                                "another consolidator holds the message",
                            ));
                        }
                    }
                    let moves = counts.failed == 0 || sync.advance;
                    let watermark = if moves { Some(advance(&mut tx, &sync, now).await?) } else { None };
                    if counts.failed > 0 && sync.advance {
                        tx.add_gaps(id, now).await?;
                    }
                    tx.close_gaps(id, now).await?;
                    if counts.failed > 0 && !sync.advance {
                        // The available records are in the table, but the sync is still incomplete.
                        let text = forced_end(&mut tx, &sync, counts.failed, now).await?;
                        return Ok(Some(format!("sync {id} of feed {} is {text}", sync.feed)));
                    }
                    tx.complete_sync(id, SyncState::Consolidating, watermark, now).await?;
                    let text = end_run(&mut tx, id, &sync, now).await?;
                    let partitions = counts.expected;
                    Ok(Some(format!(
                        "sync {id} of feed {} is completed: {partitions} partitions, {text}",
                        sync.feed
                    )))
                })
            })
            .await?;
        self.wake();
        if let Some(text) = &completed {
            tracing::info!(sync.id = %id, "{text}");
        }
        Ok(completed.is_some())
    }
}

/// Longest idle time of a transaction: the database ends it, so that a frozen replica does not block the others.
const IDLE_SECS: u32 = 30;

/// Why a consolidation cannot start.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConsolidationSetupError {
    /// A permanent error, such as an invalid feed configuration.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] Error),
}

impl ConsolidationContext {
    /// Whether the sync is still being consolidated with these rules.
    fn fits(&self, sync: Option<&Sync>) -> bool {
        sync.is_some_and(|sync| {
            sync.state == SyncState::Consolidating
                && sync.rules_version.unwrap_or_default() == self.built.rules_version
        })
    }

    /// Maps, prices and writes those of the records that are open, in portions of limited size.
    pub(super) async fn write_open(
        &self,
        tx: &mut Tx<'_>,
        records: Vec<String>,
        upsert: usize,
        now: Option<Timestamp>,
    ) -> Result<WriteCounts, Error> {
        let mut written = WriteCounts::default();
        let mut refused = BTreeSet::new();
        let mut left = records.clone();
        while !left.is_empty() {
            let open = tx.open_records(&self.feed, left, self.built, READ_BYTES_MAX).await?;
            written.bytes += open.bytes;
            left = open.left;
            let mut rejects = Vec::new();
            let mut priced = Vec::with_capacity(open.read.len());
            for record in open.read {
                match self.price(&record) {
                    Ok(done) => priced.push(done),
                    Err(reason) => rejects.push(NewReject {
                        record_id: record.record_id,
                        stage: Stage::Map,
                        reason,
                        payload: record.payload,
                    }),
                }
            }
            for chunk in priced.chunks(upsert.max(1)) {
                self.upsert(tx, chunk, &mut rejects, now).await?;
            }
            for reject in &rejects {
                tx.reject(&self.feed, self.sync, None, reject, now).await?;
            }
            refused.extend(rejects.into_iter().map(|reject| reject.record_id));
        }
        // This includes records that were not open: a record that reverted to its stored state needs no write.
        let accepted: Vec<String> = records.into_iter().filter(|id| !refused.contains(id)).collect();
        if !accepted.is_empty() {
            let seen_by = (!self.sync.is_nil()).then_some(self.sync);
            tx.accept(&self.feed, accepted, seen_by).await?;
        }
        written.rejected = refused.len();
        Ok(written)
    }

    fn price(&self, record: &OpenRecord) -> Result<PricedStone, String> {
        let mut mapped = self.source.map(&record.payload).map_err(|error| error.to_string())?;
        mapped.stone_id.clone_from(&record.record_id);
        let priced = self.rules.price(&self.feed, &mapped);
        Ok(PricedStone { stone: mapped, priced, payload_hash: record.payload_hash.clone() })
    }

    /// Writes diamonds. If the database refuses one, it is found by bisection and rejected, and the rest is written.
    async fn upsert(
        &self,
        tx: &mut Tx<'_>,
        diamonds: &[PricedStone],
        rejects: &mut Vec<NewReject>,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let mut spans = vec![(0, diamonds.len())];
        while let Some((from, to)) = spans.pop() {
            let part = &diamonds[from..to];
            tx.savepoint().await?;
            match tx.upsert_diamonds(&self.feed, part, self.built, now).await {
                Ok(_) => tx.release_savepoint().await?,
                Err(error) if error.is_bad_value() => {
                    tx.rollback_to_savepoint().await?;
                    if let [one] = part {
                        rejects.push(NewReject {
                            record_id: one.stone.stone_id.clone(),
                            stage: Stage::Upsert,
                            reason: crate::retry_policy::chain(&error),
                            payload: serde_json::to_string(&one.stone).unwrap_or_default(),
                        });
                    } else {
                        let middle = from.midpoint(to);
                        spans.extend([(middle, to), (from, middle)]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Moves the watermark to the end of the sync's time window; never back.
async fn advance(tx: &mut Tx<'_>, sync: &Sync, now: Option<Timestamp>) -> Result<Timestamp, Error> {
    let locked = tx.lock_feed(&sync.feed).await?;
    let before = locked.and_then(|feed| feed.watermark).map(|mark| mark.last_updated_at);
    let end = sync.updated_to;
    let after = before.map_or(end, |before| before.max(end));
    let change = WatermarkChange {
        changed_at: end,
        before,
        after: Some(after),
        run_id: Some(sync.run_id),
        by: "sync".to_owned(),
        note: sync.advance.then(|| "advanced past failed partitions".to_owned()),
    };
    tx.set_watermark(&sync.feed, &change, now).await?;
    Ok(after)
}

/// Ends the run of a completed sync with a summary.
async fn end_run(tx: &mut Tx<'_>, id: Uuid, sync: &Sync, now: Option<Timestamp>) -> Result<String, Error> {
    let done = tx.sync(id).await?.unwrap_or_else(|| sync.clone());
    let text = format!(
        "{} records consolidated, {} rejected, {} deleted; the watermark is {}",
        done.consolidation_processed,
        done.consolidation_errors,
        done.deleted,
        done.watermark_after.map_or_else(|| "unchanged".to_owned(), |at| at.to_rfc3339()),
    );
    record_event(tx, sync, Level::Info, &text, now).await?;
    let metadata = serde_json::json!({
        "sync": id, "run_type": sync.run_type.as_str(), "records": done.consolidation_processed,
        "rejected": done.consolidation_errors, "deleted": done.deleted, "delete_note": done.delete_note,
        "watermark": done.watermark_after, "is_full": sync.run_type == RunType::Full,
    });
    tx.end_sync_run(&sync.ops_run_id, RunState::Success, EndCause::Reported, metadata, now).await?;
    recovered(tx, &done, now).await?;
    Ok(text)
}

/// Ends a forced consolidation that does not move the watermark: the sync fails and can be retried.
async fn forced_end(
    tx: &mut Tx<'_>,
    sync: &Sync,
    failed: i64,
    now: Option<Timestamp>,
) -> Result<String, Error> {
    let reason =
        format!("consolidated by force without {failed} failed partitions; the watermark is unmoved");
    tx.move_sync(sync.run_id, SyncState::Consolidating, SyncState::Failed, Some(&reason), now).await?;
    record_event(tx, sync, Level::Warn, &reason, now).await?;
    let metadata = serde_json::json!({"sync": sync.run_id, "error": reason, "forced": true});
    tx.end_sync_run(&sync.ops_run_id, RunState::Failed, EndCause::Reported, metadata, now).await?;
    Ok(reason)
}
