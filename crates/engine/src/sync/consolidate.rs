//! Consolidation: maps and prices batches of pages and writes them to the canonical table, partition by partition.
//!
//! A batch is one transaction that locks its partition, so two replicas never process the same pages, and a replica
//! that dies leaves nothing behind. Whether a record is open is derived from its row, so a repeated batch writes
//! nothing.

use super::Syncs;
use super::circuit::{FeedAccessError, FeedWait};
use super::evaluate::recovered;
use super::ledger::{Outcomes, alert_ledger, batch_ledger};
use super::page::raw_tables;
use super::plan::record_event;
use super::watermark::advance_watermark;
use crate::trace::of_sync;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_core::Json;
use tidemill_core::Timestamp;
use tidemill_core::batch_size::BatchSize;
use tidemill_core::event::Level;
use tidemill_core::feed::{Feed, RunType};
use tidemill_core::feed_definition::Target;
use tidemill_core::limits::READ_BYTES_MAX;
use tidemill_core::pricing::Rules;
use tidemill_core::queue::Receipt;
use tidemill_core::records::Sync;
use tidemill_core::run::{ChangeOutcome, EndCause, RunState};
use tidemill_core::sync::SyncState;
use tidemill_core::sync_ledger::{self, LedgerState};
use tidemill_feeds::Feed as Source;
use tidemill_store::{BuildVersions, Error, FeedTables, PageRow, Refusal, RefusalCode, TargetTable, Tx};
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

/// Context of one consolidation.
#[derive(Clone)]
pub(super) struct ConsolidationContext {
    pub(super) sync: Uuid,
    pub(super) trace: String,
    pub(super) tables: Arc<FeedTables>,
    pub(super) source: Arc<dyn Source>,
    /// Whether the columns of the feed's table were inferred from the first records.
    pub(super) columns_are_inferred: bool,
    /// New keys of the source.
    pub(super) new_keys: Arc<Mutex<NewKeys>>,
    pub(super) rules: Arc<Rules>,
    pub(super) built: BuildVersions,
    /// Records how long this consolidation waits for the feed.
    pub(super) wait: Arc<FeedWait>,
}

/// Keys of records for which the user's table has no column.
#[derive(Debug, Default)]
pub(super) struct NewKeys {
    pub(super) found: BTreeSet<String>,
    pub(super) reported: BTreeSet<String>,
    /// Columns that the source no longer fills, and that were reported.
    pub(super) lost: BTreeSet<String>,
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
    /// Records that the pages contain again.
    repeats: Vec<String>,
    /// End of the pages in the portions so far.
    to: i32,
    bytes: usize,
    batch_size: BatchSize,
    /// Number of records in the last portion.
    given: usize,
}

impl<'a> BatchCursor<'a> {
    fn new(pages: &'a [PageRow], end: i32, records_max: usize) -> Self {
        let (done, repeats, batch_size) = (BTreeSet::new(), Vec::new(), BatchSize::default());
        Self { pages, end, records_max, done, repeats, to: end, bytes: 0, batch_size, given: 0 }
    }

    /// Returns the records of the next portion; `None` if the batch is full or no page is left.
    fn next_ids(&mut self) -> Option<Vec<String>> {
        let mut ids = Vec::new();
        let left = READ_BYTES_MAX.saturating_sub(self.bytes);
        let records = self.batch_size.next(left).min(self.records_max.saturating_sub(self.done.len()));
        while let [page, rest @ ..] = self.pages
            && (self.done.is_empty() || ids.len() + page.record_ids.len() <= records)
        {
            for id in &page.record_ids {
                let list = if self.done.insert(id.clone()) { &mut ids } else { &mut self.repeats };
                list.push(id.clone());
            }
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct WriteCounts {
    pub(super) rejected: usize,
    /// Number of those that a unique key refused: they are written again at the end.
    pub(super) moved: usize,
    /// Bytes of the records that were read.
    pub(super) bytes: usize,
    /// Rows that were deleted because their records are flagged.
    pub(super) deleted_by_flag: usize,
    /// Outcomes of the records of a sync, except for those that were up to date.
    pub(super) outcomes: Outcomes,
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
    /// Creates the context of a sync: its feed, its tables and its pinned rules.
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
        if sync.definition != source.digest() {
            let reason = "the definition of the feed changed during the sync; start a new sync";
            return Err(ConsolidationSetupError::Refused(reason.to_owned()));
        }
        let version = sync.rules_version.unwrap_or_default();
        let context = self.context_of(&record.feed, source, version).await?;
        Ok(ConsolidationContext { sync: sync.run_id, trace: sync.trace_id.clone(), ..context })
    }

    /// Creates the context of a feed without a sync.
    pub(super) async fn context_of(
        &self,
        feed: &Feed,
        source: Arc<dyn Source>,
        rules_version: i32,
    ) -> Result<ConsolidationContext, Error> {
        let mut tables = raw_tables(feed);
        if let Some(definition) = source.definition() {
            tables.target = Some(Arc::new(self.target_of(&feed.feed, &definition.into).await?));
        }
        let inferred = feed.settings.get("columns_are_inferred").and_then(Json::as_bool);
        Ok(ConsolidationContext {
            sync: Uuid::nil(),
            trace: String::new(),
            tables: Arc::new(tables),
            built: BuildVersions { mapper_version: source.mapper_version(), rules_version },
            source,
            columns_are_inferred: inferred.unwrap_or(false),
            new_keys: Arc::default(),
            rules: Arc::new(self.pinned(rules_version).await?),
            wait: Arc::default(),
        })
    }

    /// Reads the table of a definition, which must exist and fit.
    async fn target_of(&self, feed: &str, into: &Target) -> Result<TargetTable, Error> {
        let refused = |message: String, hint: String| {
            Error::Refused(Refusal { code: RefusalCode::BadValue, message, hint: Some(hint) })
        };
        let plan = self.engine.store().plan_table(into).await?;
        let hint = format!("tidemill feed apply {feed}.feed.yaml");
        if let Some(problem) = plan.problems.first() {
            return Err(refused(problem.clone(), hint));
        }
        let table = self.engine.store().target_table(into).await?.filter(|_| plan.statements.is_empty());
        let missing = || {
            let what = if plan.exists { "lacks columns of the definition" } else { "does not exist" };
            refused(format!("the table {} of feed {feed} {what}", into.table), hint)
        };
        table.ok_or_else(missing)
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
                metrics::counter!(name, "feed" => context.tables.feed.clone()).increment(by as u64);
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
                    tx.limit_locks(LOCK_WAIT_SECS).await?;
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
                    let (mut rejected, mut deleted_by_flag, mut outcomes) = (0, 0, Outcomes::new());
                    let began = Instant::now();
                    while began.elapsed() < BATCH_TIME_MAX
                        && let Some(ids) = cursor.next_ids()
                    {
                        let name = Some(partition.partition_id.as_str());
                        let written = context.write_open(&mut tx, ids, name, settings.upsert, now).await?;
                        rejected += written.rejected;
                        deleted_by_flag += written.deleted_by_flag;
                        outcomes.extend(written.outcomes);
                        cursor.learn(written.bytes);
                    }
                    let (records_read, to) = (cursor.done.len(), cursor.to);
                    let int = |n| i64::try_from(n).unwrap_or(i64::MAX);
                    let mut ledger = partition.ledger;
                    ledger.merge(&batch_ledger(&cursor.done, &cursor.repeats, &outcomes));
                    ledger.deleted_by_flag += int(deleted_by_flag);
                    let (place, counted) = ((from, to), (int(records_read), int(rejected)));
                    let partition = (context.sync, partition.partition_id.as_str());
                    tx.consolidate_partition(partition, place, counted, &ledger).await?;
                    Ok(BatchOutcome::Done { records_read, rejected })
                })
            })
            .await
    }

    /// Completes a sync: its state, the watermark, the gaps, the run and the message are one commit.
    pub(super) async fn complete(&self, id: Uuid, receipt: &Receipt) -> Result<bool, Error> {
        let (receipt, now) = (receipt.clone(), self.now());
        if self.engine.store().read_counts(id).await?.unconsolidated > 0 {
            return Ok(false);
        }
        // Read before the transaction, which would hold its locks for as long as the pages are counted.
        let read = self.engine.store().sync(id.to_string()).await?;
        let ledger = self.closed_ledger(&read).await?;
        let completed = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(found) = tx.sync(id).await? else { return Ok(None) };
                    tx.lock_run(&found.ops_run_id).await?;
                    let Some(sync) = tx.lock_sync(id).await? else { return Ok(None) };
                    let counts = tx.count_partitions(id).await?;
                    let is_repriced = sync.rules_version != read.rules_version;
                    if sync.state != SyncState::Consolidating || counts.unconsolidated > 0 || is_repriced {
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
                    let watermark = if moves { advance_watermark(&mut tx, &sync, now).await? } else { None };
                    if counts.failed > 0 && sync.advance {
                        tx.add_gaps(id, now).await?;
                    }
                    tx.close_gaps(id, now).await?;
                    if counts.failed > 0 && !sync.advance {
                        // The available records are in the table, but the sync is still incomplete.
                        let text = forced_end(&mut tx, &sync, counts.failed, now).await?;
                        return Ok(Some(format!("sync {id} of feed {} is {text}", sync.feed)));
                    }
                    tx.complete_sync(id, SyncState::Consolidating, watermark, &ledger, now).await?;
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

/// Time after which a batch takes no further records, so that slow expressions do not keep its transaction open.
const BATCH_TIME_MAX: Duration = Duration::from_secs(10);

/// Longest idle time of a transaction: the database ends it, so that a frozen replica does not block the others.
pub(super) const IDLE_SECS: u32 = 30;

/// Longest wait for a lock: another session may have locked the user's table.
pub(super) const LOCK_WAIT_SECS: u32 = 5;

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
}

/// Ends the run of a completed sync with a summary.
async fn end_run(tx: &mut Tx<'_>, id: Uuid, sync: &Sync, now: Option<Timestamp>) -> Result<String, Error> {
    let done = tx.sync(id).await?.unwrap_or_else(|| sync.clone());
    let ledger = done.ledger.clone().unwrap_or_default();
    let summary = sync_ledger::summary(&ledger, LedgerState::Final, done.deleted_rows());
    let text = format!(
        "{summary}; the watermark is {}",
        done.watermark_after
            .map_or_else(|| "not set, so the next sync reads all records".to_owned(), |at| at.to_rfc3339(),),
    );
    record_event(tx, sync, Level::Info, &text, now).await?;
    let metadata = serde_json::json!({
        "sync": id, "run_type": sync.run_type.as_str(), "records": done.consolidation_processed,
        "rejected": ledger.rejected_total(), "deleted": done.deleted, "delete_note": done.delete_note,
        "absent_kept": done.absent_kept, "ledger": ledger, "summary": summary,
        "watermark": done.watermark_after, "is_full": sync.run_type == RunType::Full,
    });
    tx.end_sync_run(&sync.ops_run_id, RunState::Success, EndCause::Reported, metadata, now).await?;
    recovered(tx, &done, now).await?;
    alert_ledger(tx, &done, &ledger, now).await?;
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
