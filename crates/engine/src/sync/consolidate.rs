//! Consolidation: batches of pages are mapped, priced and written into the canonical table, partition by partition.
//!
//! A batch is one transaction that holds its partition: no two replicas do the same pages, and one that dies leaves
//! nothing behind. What is open is derived, stone by stone, so that a batch done twice writes nothing the second
//! time.

use super::Syncs;
use super::circuit::FeedWait;
use super::evaluate::recovered;
use super::plan::say;
use crate::trace::of_sync;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidemill_core::Timestamp;
use tidemill_core::broken::Break;
use tidemill_core::event::Level;
use tidemill_core::feed::RunType;
use tidemill_core::limits::READ_BYTES_MAX;
use tidemill_core::portion::Portion;
use tidemill_core::pricing::Rules;
use tidemill_core::queue::Receipt;
use tidemill_core::records::{Stage, Sync, WatermarkChange};
use tidemill_core::run::{Applied, EndCause, RunState};
use tidemill_core::sync::SyncState;
use tidemill_feeds::Feed as Source;
use tidemill_store::{Built, Error, NewReject, OpenStone, PageRow, PricedStone, RefusalCode, Tx};
use tracing::Instrument as _;
use uuid::Uuid;

/// What one consolidation works with.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) sync: Uuid,
    pub(super) trace: String,
    pub(super) feed: String,
    pub(super) source: Arc<dyn Source>,
    pub(super) rules: Arc<Rules>,
    pub(super) built: Built,
    /// Notes how long this consolidation has waited for the feed.
    pub(super) wait: Arc<FeedWait>,
}

/// The pages of a batch, cut into portions: whole pages, at most so many stones and bytes together, and one page in any
/// case.
struct Cut<'a> {
    pages: &'a [PageRow],
    /// Where the partition ends.
    end: i32,
    stones_max: usize,
    /// Stones that were given out.
    done: BTreeSet<String>,
    /// Up to where the pages were given out.
    to: i32,
    bytes: usize,
    portion: Portion,
    /// Stones of the last portion.
    given: usize,
}

impl<'a> Cut<'a> {
    fn new(pages: &'a [PageRow], end: i32, stones_max: usize) -> Self {
        let (done, portion) = (BTreeSet::new(), Portion::default());
        Self { pages, end, stones_max, done, to: end, bytes: 0, portion, given: 0 }
    }

    /// The stones of the next pages; `None` where the batch is full, or nothing is left.
    fn next_ids(&mut self) -> Option<Vec<String>> {
        let mut ids = Vec::new();
        let left = READ_BYTES_MAX.saturating_sub(self.bytes);
        let records = self.portion.records(left).min(self.stones_max.saturating_sub(self.done.len()));
        while let [page, rest @ ..] = self.pages
            && (self.done.is_empty() || ids.len() + page.stone_ids.len() <= records)
        {
            ids.extend(page.stone_ids.iter().filter(|id| self.done.insert((*id).clone())).cloned());
            self.to = rest.first().map_or(self.end, |next| next.offset);
            self.pages = rest;
        }
        self.given = ids.len();
        (!ids.is_empty()).then_some(ids)
    }

    /// Takes note of the bytes that the last portion had.
    fn learn(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.portion.learn(self.given, bytes);
    }
}

/// What was done with some stones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Written {
    /// Stones that were rejected.
    pub(super) rejected: usize,
    /// Bytes of the records that were read.
    pub(super) bytes: usize,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// Some pages are in the table.
    Done {
        /// Stones on them.
        looked_at: usize,
        /// Stones that were rejected.
        rejected: usize,
    },
    /// No partition has open pages that nobody else has at hand; or somebody stopped the sync, or gave it other rules.
    Nothing,
}

impl Syncs {
    /// What a sync is consolidated with: its feed, and the rules that it is pinned to.
    pub(super) async fn bench(&self, sync: &Sync) -> Result<Bench, BenchFault> {
        let record = self.engine.store().feed(sync.feed.clone()).await?;
        let source = self.feeds.open(&record.feed).map_err(|error| BenchFault::Refused(error.to_string()))?;
        let version = sync.rules_version.unwrap_or_default();
        let rules = self.pinned(version).await?;
        let built = Built { mapper_version: source.mapper_version(), rules_version: version };
        Ok(Bench {
            sync: sync.run_id,
            trace: sync.trace_id.clone(),
            feed: sync.feed.clone(),
            source,
            rules: Arc::new(rules),
            built,
            wait: Arc::default(),
        })
    }

    /// The rules of a version.
    pub(super) async fn pinned(&self, version: i32) -> Result<Rules, Error> {
        let rules = self.engine.store().pinned_rules(version).await?;
        Ok(Rules::new(rules))
    }

    /// Consolidates the next pages of some partition, in one transaction.
    pub(super) async fn consolidate_batch(&self, bench: &Bench) -> Result<Batch, Error> {
        let span = of_sync!("batch", bench.trace, bench.sync);
        let batch = self.write_batch(bench).instrument(span).await?;
        if let Batch::Done { looked_at, rejected } = &batch {
            let count = |name: &'static str, by: usize| {
                metrics::counter!(name, "feed" => bench.feed.clone()).increment(by as u64);
            };
            count("tidemill_consolidation_batches_total", 1);
            count("tidemill_consolidated_stones_total", looked_at.saturating_sub(*rejected));
            count("tidemill_rejected_stones_total", *rejected);
        }
        Ok(batch)
    }

    async fn write_batch(&self, bench: &Bench) -> Result<Batch, Error> {
        let (bench, settings, now) = (bench.clone(), self.settings.clone(), self.now());
        // On SQLite nobody else can write meanwhile: shorter batches let the others in.
        let stones = if self.engine.store().is_postgres() { settings.batch } else { settings.batch.min(500) };
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.limit_idle(IDLE_SECS).await?;
                    let Some(partition) = tx.open_partition(bench.sync).await? else {
                        return Ok(Batch::Nothing);
                    };
                    // Read while the partition is held: whoever pins other rules waits for that.
                    if !bench.fits(tx.sync(bench.sync).await?.as_ref()) {
                        return Ok(Batch::Nothing);
                    }
                    let from = partition.consolidated_to;
                    let pages = tx.pages_from(bench.sync, &partition.partition_id, from, stones).await?;
                    let mut cut = Cut::new(&pages, partition.next_offset, stones);
                    let mut rejected = 0;
                    while let Some(ids) = cut.next_ids() {
                        let written = bench.write_open(&mut tx, ids, settings.upsert, now).await?;
                        rejected += written.rejected;
                        cut.learn(written.bytes);
                    }
                    let (looked_at, to) = (cut.done.len(), cut.to);
                    let (name, int) = (&partition.partition_id, |n| i64::try_from(n).unwrap_or(i64::MAX));
                    let counted = (int(looked_at), int(rejected));
                    tx.consolidate_partition(bench.sync, name, from, to, counted.0, counted.1).await?;
                    Ok(Batch::Done { looked_at, rejected })
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
                        Some(Applied::Applied) => {}
                        _ => return Err(Error::refused(RefusalCode::Stale, "another consolidator has it")),
                    }
                    let moves = counts.failed == 0 || sync.advance;
                    let watermark = if moves { Some(advance(&mut tx, &sync, now).await?) } else { None };
                    if counts.failed > 0 && sync.advance {
                        tx.leave_gaps(id, now).await?;
                    }
                    tx.close_gaps(id, now).await?;
                    if counts.failed > 0 && !sync.advance {
                        // What was there is in the table; the sync itself is as unfinished as before.
                        let told = forced_end(&mut tx, &sync, counts.failed, now).await?;
                        return Ok(Some(format!("sync {id} of feed {} is {told}", sync.feed)));
                    }
                    tx.complete_sync(id, SyncState::Consolidating, watermark, now).await?;
                    let told = end_run(&mut tx, id, &sync, now).await?;
                    let partitions = counts.expected;
                    Ok(Some(format!(
                        "sync {id} of feed {} is completed: {partitions} partitions, {told}",
                        sync.feed
                    )))
                })
            })
            .await?;
        self.ring();
        if let Some(told) = &completed {
            tracing::info!(sync.id = %id, "{told}");
        }
        Ok(completed.is_some())
    }
}

/// How long a transaction may stand idle before the database ends it: a frozen replica must not stop the others.
const IDLE_SECS: u32 = 30;

/// Why a sync cannot be consolidated at all.
#[derive(Debug, thiserror::Error)]
pub(super) enum BenchFault {
    /// For good.
    #[error("{0}")]
    Refused(String),
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Bench {
    /// Whether the sync is still one that is consolidated by these rules.
    fn fits(&self, sync: Option<&Sync>) -> bool {
        sync.is_some_and(|sync| {
            sync.state == SyncState::Consolidating
                && sync.rules_version.unwrap_or_default() == self.built.rules_version
        })
    }

    /// Writes those of the stones that are open: read, mapped and priced so many bytes at a time.
    pub(super) async fn write_open(
        &self,
        tx: &mut Tx<'_>,
        stones: Vec<String>,
        upsert: usize,
        now: Option<Timestamp>,
    ) -> Result<Written, Error> {
        let mut written = Written::default();
        let mut refused = BTreeSet::new();
        let mut left = stones.clone();
        while !left.is_empty() {
            let open = tx.open_stones(&self.feed, left, self.built, READ_BYTES_MAX).await?;
            written.bytes += open.bytes;
            left = open.left;
            let mut rejects = Vec::new();
            let mut priced = Vec::with_capacity(open.read.len());
            for stone in open.read {
                match self.price(&stone) {
                    Ok(done) => priced.push(done),
                    Err(reason) => rejects.push(NewReject {
                        stone_id: stone.stone_id,
                        stage: Stage::Map,
                        reason,
                        payload: stone.payload,
                    }),
                }
            }
            for chunk in priced.chunks(upsert.max(1)) {
                self.upsert(tx, chunk, &mut rejects, now).await?;
            }
            for reject in &rejects {
                tx.reject(&self.feed, self.sync, None, reject, now).await?;
            }
            refused.extend(rejects.into_iter().map(|reject| reject.stone_id));
        }
        // Those that were not open too: a record that is again what it was needs no writing.
        let accepted: Vec<String> = stones.into_iter().filter(|id| !refused.contains(id)).collect();
        if !accepted.is_empty() {
            let seen_by = (!self.sync.is_nil()).then_some(self.sync);
            tx.accept(&self.feed, accepted, seen_by).await?;
        }
        written.rejected = refused.len();
        Ok(written)
    }

    fn price(&self, stone: &OpenStone) -> Result<PricedStone, String> {
        let mut mapped = self.source.map(&stone.payload).map_err(|fault| fault.to_string())?;
        mapped.stone_id.clone_from(&stone.stone_id);
        let priced = self.rules.price(&self.feed, &mapped);
        Ok(PricedStone { stone: mapped, priced, payload_hash: stone.payload_hash.clone() })
    }

    /// Writes stones. Where the database refuses one, it is found by halves and rejected; the rest goes on.
    async fn upsert(
        &self,
        tx: &mut Tx<'_>,
        stones: &[PricedStone],
        rejects: &mut Vec<NewReject>,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let mut spans = vec![(0, stones.len())];
        while let Some((from, to)) = spans.pop() {
            let part = &stones[from..to];
            tx.savepoint().await?;
            match tx.upsert_stones(&self.feed, part, self.built, now).await {
                Ok(_) => tx.release_savepoint().await?,
                Err(error) if error.is_bad_value() => {
                    tx.rollback_to_savepoint().await?;
                    if let [one] = part {
                        rejects.push(NewReject {
                            stone_id: one.stone.stone_id.clone(),
                            stage: Stage::Upsert,
                            reason: crate::patience::chain(&error),
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

/// Moves the watermark to the sealed end of the sync's window; never back.
async fn advance(tx: &mut Tx<'_>, sync: &Sync, now: Option<Timestamp>) -> Result<Timestamp, Error> {
    let locked = tx.lock_feed(&sync.feed).await?;
    let before = locked.and_then(|feed| feed.watermark).map(|mark| mark.last_updated_at);
    let end = if Break::WatermarkNow.is_on() { tx.database_now(now).await? } else { sync.updated_to };
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

/// Ends the run of a completed sync, with what it did.
async fn end_run(tx: &mut Tx<'_>, id: Uuid, sync: &Sync, now: Option<Timestamp>) -> Result<String, Error> {
    let done = tx.sync(id).await?.unwrap_or_else(|| sync.clone());
    let told = format!(
        "{} stones consolidated, {} rejected, {} deleted; the watermark is {}",
        done.consolidation_processed,
        done.consolidation_errors,
        done.deleted,
        done.watermark_after.map_or_else(|| "unmoved".to_owned(), |at| at.to_rfc3339()),
    );
    say(tx, sync, Level::Info, &told, now).await?;
    let metadata = serde_json::json!({
        "sync": id, "run_type": sync.run_type.as_str(), "records": done.consolidation_processed,
        "rejected": done.consolidation_errors, "deleted": done.deleted, "delete_note": done.delete_note,
        "watermark": done.watermark_after, "is_full": sync.run_type == RunType::Full,
    });
    tx.end_sync_run(&sync.ops_run_id, RunState::Success, EndCause::Reported, metadata, now).await?;
    recovered(tx, &done, now).await?;
    Ok(told)
}

/// A forced consolidation without the watermark ends where it began: failed, and to be retried.
async fn forced_end(
    tx: &mut Tx<'_>,
    sync: &Sync,
    failed: i64,
    now: Option<Timestamp>,
) -> Result<String, Error> {
    let reason =
        format!("consolidated by force without {failed} failed partitions; the watermark is unmoved");
    tx.move_sync(sync.run_id, SyncState::Consolidating, SyncState::Failed, Some(&reason), now).await?;
    say(tx, sync, Level::Warn, &reason, now).await?;
    let metadata = serde_json::json!({"sync": sync.run_id, "error": reason, "forced": true});
    tx.end_sync_run(&sync.ops_run_id, RunState::Failed, EndCause::Reported, metadata, now).await?;
    Ok(reason)
}
