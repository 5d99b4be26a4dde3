//! Planning: turns a claimed run into partitions and their first messages, in one commit.

use super::Syncs;
use super::circuit::FeedAccessError;
use super::feeds::sealed_end;
use super::scan::top_of;
use std::sync::Arc;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::feed::{FieldRange, RunType};
use tidemill_core::heatmap::Goal;
use tidemill_core::message::{Message, WorkItem};
use tidemill_core::queue::{NewMessage, WORK_ITEMS};
use tidemill_core::records::{FeedRecord, Sync};
use tidemill_core::run::Claim;
use tidemill_core::sync::SyncState;
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_feeds::Feed as Source;
use tidemill_store::{Error, Holder, NewPartition, RefusalCode, Tx};
use uuid::Uuid;

/// Outcome of planning a run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum PlanOutcome {
    /// A new sync with its partitions.
    Begun {
        run_id: Uuid,
        partitions: usize,
        /// Expected number of records.
        predicted: u64,
        /// Number of count calls.
        calls: u32,
    },
    /// A failed sync continues with its open partitions.
    Resumed {
        run_id: Uuid,
        /// Number of reopened partitions.
        partitions: u64,
    },
}

impl PlanOutcome {
    /// Returns a summary for the log.
    pub(super) fn sentence(&self, feed: &str) -> String {
        match self {
            Self::Begun { run_id, partitions, predicted, calls } => format!(
                "sync {run_id} of feed {feed} started: {partitions} partitions, {predicted} records expected after \
{calls} counts"
            ),
            Self::Resumed { run_id, partitions } => {
                format!("sync {run_id} of feed {feed} resumed: {partitions} partitions reopened")
            }
        }
    }
}

/// Why a run could not be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A permanent error: the run fails with this reason.
    #[error("{0}")]
    Refused(String),
    /// A database error: the run stays claimed.
    #[error(transparent)]
    Store(#[from] Error),
    #[error("the run was cancelled")]
    Cancelled,
    /// A run of one project names the feed of another. The message does not reveal that the feed exists.
    #[error("feed `{0}` does not exist")]
    OtherProject(String),
}

impl From<FeedAccessError> for PlanError {
    fn from(error: FeedAccessError) -> Self {
        match error {
            FeedAccessError::Store(error) => Self::Store(error),
            FeedAccessError::Cancelled => Self::Cancelled,
            FeedAccessError::Feed(_)
            | FeedAccessError::GivenUp { .. }
            | FeedAccessError::Down { .. }
            | FeedAccessError::Stopped => Self::Refused(error.to_string()),
        }
    }
}

/// Number of recent syncs that are searched for the last completed one.
const SYNCS_SEARCHED: usize = 20;

/// A range of the partition field that becomes a partition.
struct Slice {
    range: FieldRange,
    predicted: u64,
    updated_from: Option<Timestamp>,
    gap: Option<i64>,
}

impl Syncs {
    /// Plans a claimed run: a new sync, or the rest of a failed one.
    pub(super) async fn plan(&self, claim: &Claim, holder: &Holder) -> Result<PlanOutcome, PlanError> {
        let store = self.engine.store();
        let name = claim.metadata.get("feed").and_then(Json::as_str).unwrap_or_default().to_owned();
        let feed = match store.feed(name.clone()).await {
            Err(Error::Refused(refusal)) => return Err(PlanError::Refused(refusal.message)),
            other => other?,
        };
        if feed.feed.project_id != claim.project_id {
            return Err(PlanError::OtherProject(name));
        }
        self.claim_table_for_sync(&feed.feed).await?;
        self.restart_outage(&name).await?;
        if let Some(planned) = self.resume(claim, holder, tidemill_feeds::digest(&feed.feed)).await? {
            return Ok(planned);
        }
        self.share_rates().await;
        let source = self.open_feed(&feed.feed).await?;
        let updated_from = match requested_type(claim) {
            Some(RunType::Full) => None,
            Some(RunType::Incremental) | None => self.changes_since(&feed, &source).await?,
        };
        let run_type = if updated_from.is_some() { RunType::Incremental } else { RunType::Full };
        let began = std::time::Instant::now();
        // Taken before the first request: later changes belong to the next sync.
        let sealed = store.now(self.now()).await?;
        let goal = self.settings.goal(run_type == RunType::Full, source.granularity());
        let scanned = self.divide((&name, &claim.run_id), &source, updated_from, goal, sealed).await?;
        let mut slices: Vec<Slice> = scanned
            .partitions
            .iter()
            .map(|planned| Slice {
                range: planned.range,
                predicted: planned.predicted,
                updated_from,
                gap: None,
            })
            .collect();
        self.check_plan((&name, &claim.run_id), &source, updated_from, &scanned).await?;
        let mut calls = scanned.calls;
        // A full sync reads the whole range and so covers all gaps.
        if run_type == RunType::Incremental {
            calls += self.add_gaps((&name, &claim.run_id), &source, goal, sealed, &mut slices).await?;
        }
        // A count of zero may be wrong, and sold records are not counted. One partition over the whole range lets the
        // pages and the consolidation find out.
        if slices.is_empty() {
            slices.push(Slice { range: source.range(), predicted: 0, updated_from, gap: None });
        }
        let page_size = source.reading().page_size.unwrap_or(self.settings.page_size);
        let page_size = page_size.clamp(1, source.page_limit());
        let sync = Sync {
            feed: name,
            run_type,
            expected_workers: i32::try_from(slices.len()).unwrap_or(i32::MAX),
            watermark_before: feed.watermark.as_ref().map(|mark| mark.last_updated_at),
            updated_from,
            updated_to: sealed_end(sealed, scanned.source_time),
            page_size: i32::try_from(page_size).unwrap_or(i32::MAX),
            granularity: source.granularity(),
            predicted: i64::try_from(slices.iter().map(|slice| slice.predicted).sum::<u64>())
                .unwrap_or(i64::MAX),
            count_calls: i32::try_from(calls).unwrap_or(i32::MAX),
            scan_ms: i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX),
            heatmap: scanned.heatmap(),
            definition: source.digest(),
            ..new_sync(&claim.run_id, sealed)
        };
        self.begin(sync, slices, holder.clone(), calls).await
    }

    /// Returns the beginning of the window of an incremental sync; `None` if all records must be read: without a
    /// watermark, or after a change of the definition.
    async fn changes_since(
        &self,
        feed: &FeedRecord,
        source: &Arc<dyn Source>,
    ) -> Result<Option<Timestamp>, Error> {
        let Some(mark) = &feed.watermark else { return Ok(None) };
        if let Some(digest) = source.digest() {
            let recent = self.engine.store().syncs(Some(feed.feed.feed.clone()), SYNCS_SEARCHED).await?;
            let last = recent.into_iter().find(|sync| sync.state == SyncState::Completed);
            if last.is_none_or(|last| last.definition != Some(digest)) {
                return Ok(None);
            }
        }
        Ok(source.changes_since(mark.last_updated_at, self.settings.overlap))
    }

    /// Adds partitions for the gaps of a feed. Returns the number of count calls.
    async fn add_gaps(
        &self,
        (feed, run): (&str, &RunId),
        source: &Arc<dyn Source>,
        goal: Goal,
        now: Timestamp,
        slices: &mut Vec<Slice>,
    ) -> Result<u32, PlanError> {
        let mut calls = 0;
        for gap in self.engine.store().gaps(Some(feed.to_owned()), false).await? {
            let top = top_of(source.as_ref(), now);
            let is_counted = source.fixed_ranges(now).is_none() && gap.range.from < top;
            if !is_counted {
                let (range, updated_from) = (gap.range, gap.updated_from);
                slices.push(Slice { range, predicted: 0, updated_from, gap: Some(gap.gap_id) });
                continue;
            }
            let counted = FieldRange { to: gap.range.to.min(top), ..gap.range };
            let mut found = self.scan((feed, run), source, counted, gap.updated_from, goal).await?;
            if let Some(last) = found.partitions.last_mut() {
                last.range.to = gap.range.to;
            }
            calls += found.calls;
            slices.extend(found.partitions.iter().map(|planned| Slice {
                range: planned.range,
                predicted: planned.predicted,
                updated_from: gap.updated_from,
                gap: Some(gap.gap_id),
            }));
            if found.partitions.is_empty() {
                // No records are left: one empty partition closes the gap.
                slices.push(Slice {
                    range: gap.range,
                    predicted: 0,
                    updated_from: gap.updated_from,
                    gap: Some(gap.gap_id),
                });
            }
        }
        Ok(calls)
    }

    /// Writes a sync with its partitions and messages in one commit.
    async fn begin(
        &self,
        sync: Sync,
        slices: Vec<Slice>,
        holder: Holder,
        calls: u32,
    ) -> Result<PlanOutcome, PlanError> {
        let now = self.now();
        let planned = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    take_run(&mut tx, &sync.ops_run_id, &holder, now).await?;
                    let (run_id, predicted) = (sync.run_id, sync.predicted.unsigned_abs());
                    if !tx.insert_sync(&sync, now).await? {
                        return Ok(PlanOutcome::Begun { run_id, partitions: slices.len(), predicted, calls });
                    }
                    let mut messages = Vec::with_capacity(slices.len());
                    for (number, slice) in slices.iter().enumerate() {
                        let name = format!("partition-{number}");
                        let predicted = i64::try_from(slice.predicted).unwrap_or(i64::MAX);
                        let partition = NewPartition {
                            run_id,
                            partition: &name,
                            range: slice.range,
                            predicted,
                            updated_from: slice.updated_from,
                            gap: slice.gap,
                        };
                        tx.insert_partition(partition, now).await?;
                        messages.push(first_message(&sync, &name, slice));
                    }
                    tx.send_messages(&messages, now).await?;
                    let text = format!("{} partitions planned for {} records", slices.len(), sync.predicted);
                    record_event(&mut tx, &sync, Level::Info, &text, now).await?;
                    Ok(PlanOutcome::Begun { run_id, partitions: slices.len(), predicted, calls })
                })
            })
            .await?;
        self.wake();
        Ok(planned)
    }

    /// Resumes the failed sync that this run retries, if there is one.
    async fn resume(
        &self,
        claim: &Claim,
        holder: &Holder,
        digest: Option<String>,
    ) -> Result<Option<PlanOutcome>, PlanError> {
        let (run, holder, now) = (claim.run_id.clone(), holder.clone(), self.now());
        let resumed = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(earlier) = tx.run(&run).await?.and_then(|run| run.retry_of) else {
                        return Ok(None);
                    };
                    let Some(found) = tx.sync_of_run(&earlier).await? else { return Ok(None) };
                    // A sync reads with one definition, so after a change of it a new sync begins.
                    if found.state == SyncState::Completed || found.definition != digest {
                        return Ok(None);
                    }
                    take_run(&mut tx, &run, &holder, now).await?;
                    let Some(sync) = tx.lock_sync(found.run_id).await? else { return Ok(None) };
                    if sync.state.is_live() {
                        // The run was ended from outside, and the sync has not been updated yet.
                        tx.fail_open_partitions(sync.run_id, "its run was ended", now).await?;
                        let why = Some("its run was ended");
                        tx.move_sync(sync.run_id, sync.state, SyncState::Failed, why, now).await?;
                    }
                    if let Some(newer) = tx.newer_sync(sync.run_id).await? {
                        return Err(superseded(&sync, &newer));
                    }
                    let Some(generation) = tx.resume_sync(sync.run_id, &run, now).await? else {
                        return Ok(None);
                    };
                    let partitions = tx.reopen_partitions(sync.run_id, now).await?;
                    let sync = Sync { generation, ops_run_id: run, ..sync };
                    let mut messages = Vec::new();
                    for partition in tx.partitions(sync.run_id).await? {
                        if partition.state.is_open() {
                            messages.push(message_for(&sync, &partition));
                        }
                    }
                    tx.send_messages(&messages, now).await?;
                    let counts = tx.count_partitions(sync.run_id).await?;
                    tx.write_counts(sync.run_id, counts, now).await?;
                    record_event(
                        &mut tx,
                        &sync,
                        Level::Info,
                        &format!("{partitions} partitions opened again"),
                        now,
                    )
                    .await?;
                    Ok(Some(PlanOutcome::Resumed { run_id: sync.run_id, partitions }))
                })
            })
            .await;
        match resumed {
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::Superseded => {
                Err(PlanError::Refused(refusal.message))
            }
            other => {
                self.wake();
                Ok(other?)
            }
        }
    }
}

/// Creates a sync without a plan, named after its run.
fn new_sync(run: &RunId, now: Timestamp) -> Sync {
    Sync {
        run_id: bare(run),
        ops_run_id: run.clone(),
        feed: String::new(),
        run_type: RunType::Full,
        state: SyncState::Created,
        trace_id: run.trace_id(),
        expected_workers: 0,
        completed_workers: 0,
        failed_workers: 0,
        watermark_before: None,
        watermark_after: None,
        updated_from: None,
        updated_to: now,
        page_size: 0,
        granularity: 1,
        predicted: 0,
        count_calls: 0,
        scan_ms: 0,
        heatmap: Json::Null,
        generation: 0,
        rules_version: None,
        forced: false,
        advance: false,
        error: None,
        started_at: now,
        completed_at: None,
        consolidation_started_at: None,
        consolidation_completed_at: None,
        consolidation_processed: 0,
        consolidation_errors: 0,
        consolidation_total: 0,
        deleted: 0,
        delete_note: None,
        absence_evidence: None,
        absent_kept: 0,
        ledger: None,
        definition: None,
        updated_at: now,
    }
}

fn requested_type(claim: &Claim) -> Option<RunType> {
    claim.metadata.get("run_type").and_then(Json::as_str).and_then(|word| word.parse().ok())
}

/// Starts the claimed run and removes its lease: from here on, its messages and partitions show its progress.
async fn take_run(
    tx: &mut Tx<'_>,
    run: &RunId,
    holder: &Holder,
    now: Option<Timestamp>,
) -> Result<(), Error> {
    use tidemill_core::run::ChangeOutcome;
    match tx.start_run(run, holder, now).await? {
        ChangeOutcome::Applied | ChangeOutcome::Duplicate => tx.clear_lease(run, now).await,
        ChangeOutcome::Stale => {
            Err(Error::refused(RefusalCode::Stale, format!("the lease on run {run} is gone")))
        }
    }
}

/// Adds an event to the sync's run.
pub(super) async fn record_event(
    tx: &mut Tx<'_>,
    sync: &Sync,
    level: Level,
    message: &str,
    now: Option<Timestamp>,
) -> Result<(), Error> {
    let mut event = NewEvent::new(level, message);
    event.payload = serde_json::json!({"sync": sync.run_id, "feed": sync.feed});
    tx.append_events(&sync.ops_run_id, &[event], &Holder::default(), now).await?;
    Ok(())
}

fn first_message(sync: &Sync, partition: &str, slice: &Slice) -> NewMessage {
    let item = work_item(sync, partition, slice.range, slice.predicted, slice.updated_from, 0);
    envelope(sync, item)
}

/// Creates the message for the next page of a partition.
pub(super) fn message_for(sync: &Sync, partition: &tidemill_core::records::Partition) -> NewMessage {
    let predicted = partition.predicted.unsigned_abs();
    let offset = partition.next_offset.unsigned_abs().into();
    let name = &partition.partition_id;
    envelope(sync, work_item(sync, name, partition.range, predicted, partition.updated_from, offset))
}

fn work_item(
    sync: &Sync,
    partition: &str,
    range: FieldRange,
    predicted: u64,
    updated_from: Option<Timestamp>,
    offset: u64,
) -> WorkItem {
    let mut item = WorkItem {
        run_id: sync.run_id,
        trace_id: sync.trace_id.clone(),
        partition_id: partition.to_owned(),
        min_price: 0,
        max_price: 0,
        range: None,
        total_records: predicted,
        offset_start: 0,
        offset_end: predicted,
        offset,
        limit: sync.page_size.unsigned_abs(),
        updated_from,
        updated_to: sync.updated_to,
        feed: sync.feed.clone(),
    };
    if sync.definition.is_some() {
        item.range = Some(range);
    } else {
        item.set_prices(range, sync.granularity);
    }
    item
}

/// Wraps a work item in a queue message.
pub(super) fn envelope(sync: &Sync, item: WorkItem) -> NewMessage {
    let (id, group) = (item.id(), item.feed.clone());
    let body = serde_json::to_value(Message::WorkItem(item)).unwrap_or_default();
    let mut message = NewMessage::new(WORK_ITEMS, id, group, body);
    message.generation = sync.generation;
    message.run_id = Some(sync.run_id.to_string());
    message.trace_id = Some(sync.trace_id.clone());
    message
}

/// Returns the id of a sync: the id of its first run without the prefix.
fn bare(run: &RunId) -> Uuid {
    run.as_str().strip_prefix("run-").and_then(|text| text.parse().ok()).unwrap_or_else(Uuid::new_v4)
}

/// Error for a failed sync after which a newer sync of the feed has completed.
pub(super) fn superseded(sync: &Sync, newer: &str) -> Error {
    Error::Refused(tidemill_store::Refusal {
        code: RefusalCode::Superseded,
        message: format!(
            "sync {} is superseded: sync {newer} of feed {} has completed",
            sync.run_id, sync.feed
        ),
        hint: Some(format!("tidemill feed sync {}", sync.feed)),
    })
}
