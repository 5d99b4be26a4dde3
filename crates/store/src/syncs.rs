//! Syncs: one row per pass over a feed's window, and the arrows between its states.

use crate::codec::{At, Bare, Columns, Doc, Words};
use crate::tx::{FromColumns, on};
use crate::{Error, RefusalCode, Store, Tx, catalog};
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_core::{Json, RunId, Timestamp};
use uuid::Uuid;

impl FromColumns for Sync {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.uuid("run_id")?,
            ops_run_id: row.run_id("ops_run_id")?,
            feed: row.text("feed")?,
            run_type: row.parsed("run_type")?,
            state: row.parsed("state")?,
            trace_id: row.text("trace_id")?,
            expected_workers: row.int("expected_workers")?,
            completed_workers: row.int_or_null("completed_workers")?.unwrap_or(0),
            failed_workers: row.int_or_null("failed_workers")?.unwrap_or(0),
            watermark_before: row.time_or_null("watermark_before")?,
            watermark_after: row.time_or_null("watermark_after")?,
            updated_from: row.time_or_null("updated_from")?,
            updated_to: row.time("updated_to")?,
            page_size: row.int("page_size")?,
            granularity: row.long("granularity")?,
            predicted: row.long("predicted")?,
            count_calls: row.int("count_calls")?,
            scan_ms: row.long("scan_ms")?,
            heatmap: row.json("heatmap")?,
            generation: row.int("generation")?,
            rules_version: row.int_or_null("rules_version")?,
            forced: row.truth("forced")?,
            advance: row.truth("advance")?,
            error: row.text_or_null("error")?,
            started_at: row.time("started_at")?,
            completed_at: row.time_or_null("completed_at")?,
            consolidation_started_at: row.time_or_null("consolidation_started_at")?,
            consolidation_completed_at: row.time_or_null("consolidation_completed_at")?,
            consolidation_processed: row.long("consolidation_processed")?,
            consolidation_errors: row.long("consolidation_errors")?,
            consolidation_total: row.long("consolidation_total")?,
            deleted: row.long("deleted")?,
            delete_note: row.text_or_null("delete_note")?,
            updated_at: row.time("updated_at")?,
        })
    }
}

/// How many partitions of a sync there are, by where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionCounts {
    /// All of them.
    pub expected: i64,
    /// Read to the end.
    pub completed: i64,
    /// Failed.
    pub failed: i64,
    /// With pages that are not in the canonical table yet.
    pub unconsolidated: i64,
}

impl FromColumns for PartitionCounts {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            expected: row.long("expected")?,
            completed: row.long("completed")?,
            failed: row.long("failed")?,
            unconsolidated: row.long("unconsolidated")?,
        })
    }
}

/// A message of a sync that is live or dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncMessage {
    /// The queue.
    pub queue: String,
    /// The message.
    pub message_id: String,
    /// Its generation.
    pub generation: i32,
    /// Whether it is a dead letter.
    pub is_dead: bool,
    /// Why it is one.
    pub dead_reason: String,
    /// What went wrong the last time.
    pub last_error: Option<String>,
    /// The process that received it last, unless it gave it back.
    pub locked_by: Option<tidemill_core::WorkerId>,
    /// When it can be received, which is the end of its lock while it is locked.
    pub visible_at: Timestamp,
}

impl SyncMessage {
    /// The process that has the message in hand.
    pub fn holder(&self, now: Timestamp) -> Option<tidemill_core::WorkerId> {
        self.locked_by.filter(|_| self.visible_at > now)
    }

    /// The partition that it is about.
    pub fn partition(&self) -> Option<&str> {
        self.message_id.split(':').nth(1)
    }
}

impl FromColumns for SyncMessage {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            queue: row.text("queue")?,
            message_id: row.text("message_id")?,
            generation: row.int("generation")?,
            is_dead: row.int("dead")? != 0,
            dead_reason: row.text_or_null("dead_reason")?.unwrap_or_default(),
            last_error: row.text_or_null("last_error")?,
            locked_by: row.worker_or_null("locked_by")?,
            visible_at: row.time("visible_at")?,
        })
    }
}

impl Tx<'_> {
    /// Writes a new sync. False: it was written before.
    pub async fn insert_sync(&mut self, sync: &Sync, now: Option<Timestamp>) -> Result<bool, Error> {
        let now = self.time(now);
        let written = on!(
            self,
            catalog::SYNC_INSERT,
            [
                Bare(sync.run_id),
                sync.ops_run_id.as_str(),
                sync.feed.as_str(),
                sync.run_type.as_str(),
                sync.state.as_str(),
                sync.trace_id.as_str(),
                sync.expected_workers,
                sync.watermark_before.map(At),
                sync.updated_from.map(At),
                At(sync.updated_to),
                sync.page_size,
                sync.granularity,
                sync.predicted,
                sync.count_calls,
                sync.scan_ms,
                Doc(sync.heatmap.clone()),
                now,
            ],
            execute,
            "write a sync"
        )?;
        Ok(written.count() > 0)
    }

    /// A sync.
    pub async fn sync(&mut self, sync: Uuid) -> Result<Option<Sync>, Error> {
        on!(self, catalog::SYNC_GET, [Bare(sync)], fetch_optional, "read a sync")?.record("read a sync")
    }

    /// The sync that a run is an attempt of, where it is the last one.
    pub async fn sync_of_run(&mut self, run: &RunId) -> Result<Option<Sync>, Error> {
        on!(self, catalog::SYNC_OF_RUN, [run.as_str()], fetch_optional, "read a sync")?.record("read a sync")
    }

    /// Syncs that are neither completed nor failed, oldest first.
    pub async fn live_syncs(&mut self, limit: usize) -> Result<Vec<Sync>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Ok(on!(self, catalog::SYNC_LIVE, [limit], fetch_all, "list syncs")?
            .readable("run_metadata", "run_id"))
    }

    /// Locks a sync until the step ends, and reads it. What is counted after this cannot be counted elsewhere at the
    /// same time.
    pub async fn lock_sync(&mut self, sync: Uuid) -> Result<Option<Sync>, Error> {
        let _: Option<String> = on!(self, catalog::SYNC_LOCK, [Bare(sync)], fetch_optional, "lock a sync")?
            .record("lock a sync")?;
        self.sync(sync).await
    }

    /// Counts the partitions of a sync.
    pub async fn count_partitions(&mut self, sync: Uuid) -> Result<PartitionCounts, Error> {
        let counts = on!(self, catalog::SYNC_COUNT, [Bare(sync)], fetch_optional, "count partitions")?
            .record("count")?;
        Ok(counts.unwrap_or(PartitionCounts { expected: 0, completed: 0, failed: 0, unconsolidated: 0 }))
    }

    /// Writes the counts that were derived from the partitions.
    pub async fn write_counts(
        &mut self,
        sync: Uuid,
        counts: PartitionCounts,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        let int = |count: i64| i32::try_from(count).unwrap_or(i32::MAX);
        let (completed, failed) = (int(counts.completed), int(counts.failed));
        on!(self, catalog::SYNC_COUNTED, [Bare(sync), completed, failed, now], execute, "write counts")?;
        Ok(())
    }

    /// Moves a sync from the state that the caller believes in. False: it was not there.
    pub async fn move_sync(
        &mut self,
        sync: Uuid,
        from: SyncState,
        to: SyncState,
        error: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let moved = on!(
            self,
            catalog::SYNC_STATE,
            [Bare(sync), from.as_str(), to.as_str(), error, now],
            execute,
            "move a sync"
        )?;
        Ok(moved.count() > 0)
    }

    /// Gives a sync to the consolidators; the generation of the message that tells them.
    pub async fn trigger_sync(
        &mut self,
        sync: Uuid,
        from: SyncState,
        forced: bool,
        advance: bool,
        rules_version: i32,
        now: Option<Timestamp>,
    ) -> Result<Option<i32>, Error> {
        let now = self.time(now);
        let generation: Option<i64> = on!(
            self,
            catalog::SYNC_TRIGGER,
            [Bare(sync), from.as_str(), forced, advance, rules_version, now],
            fetch_optional,
            "trigger consolidation"
        )?
        .record("trigger consolidation")?;
        Ok(generation.map(|generation| i32::try_from(generation).unwrap_or(i32::MAX)))
    }

    /// Has a sync that is being consolidated go on by other rules, and look at every stone again. False: it is not.
    pub async fn repin_sync(
        &mut self,
        sync: Uuid,
        rules_version: i32,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let moved =
            on!(self, catalog::SYNC_REPIN, [Bare(sync), rules_version, now], execute, "pin other rules")?;
        if moved.count() > 0 {
            self.consolidate_anew(sync).await?;
        }
        Ok(moved.count() > 0)
    }

    /// Has a consolidation look at every stone again.
    pub async fn consolidate_anew(&mut self, sync: Uuid) -> Result<(), Error> {
        on!(self, catalog::PARTITION_ANEW, [Bare(sync)], execute, "begin a consolidation anew")?;
        Ok(())
    }

    /// Notes that a consolidator is at it. False: there is nothing to consolidate.
    pub async fn consume_sync(&mut self, sync: Uuid, now: Option<Timestamp>) -> Result<bool, Error> {
        let now = self.time(now);
        let moved = on!(self, catalog::SYNC_CONSUME, [Bare(sync), now], execute, "begin consolidation")?;
        Ok(moved.count() > 0)
    }

    /// Adds to the stones that were deleted. False: the sync is not being consolidated any more.
    pub async fn add_deleted(
        &mut self,
        sync: Uuid,
        deleted: i64,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let written = on!(self, catalog::SYNC_PROGRESS, [Bare(sync), deleted, now], execute, "count stones")?;
        Ok(written.count() > 0)
    }

    /// Says why nothing was deleted.
    pub async fn note_delete(&mut self, sync: Uuid, note: Option<&str>) -> Result<(), Error> {
        on!(self, catalog::SYNC_DELETE_NOTE, [Bare(sync), note], execute, "note a deletion")?;
        Ok(())
    }

    /// Completes a sync. False: it was not in the state that the caller believes in.
    pub async fn complete_sync(
        &mut self,
        sync: Uuid,
        from: SyncState,
        watermark: Option<Timestamp>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let moved = on!(
            self,
            catalog::SYNC_COMPLETE,
            [Bare(sync), watermark.map(At), now, from.as_str()],
            execute,
            "complete a sync"
        )?;
        Ok(moved.count() > 0)
    }

    /// Gives a failed sync to another attempt; the generation of its messages.
    pub async fn resume_sync(
        &mut self,
        sync: Uuid,
        run: &RunId,
        now: Option<Timestamp>,
    ) -> Result<Option<i32>, Error> {
        let now = self.time(now);
        let generation: Option<i64> = on!(
            self,
            catalog::SYNC_RESUME,
            [Bare(sync), run.as_str(), now],
            fetch_optional,
            "resume a sync"
        )?
        .record("resume a sync")?;
        Ok(generation.map(|generation| i32::try_from(generation).unwrap_or(i32::MAX)))
    }

    /// A newer sync of the same feed that was completed, where there is one.
    pub async fn newer_sync(&mut self, sync: Uuid) -> Result<Option<String>, Error> {
        on!(self, catalog::SYNC_NEWER, [Bare(sync)], fetch_optional, "find a newer sync")?
            .record("find a newer sync")
    }

    /// The last full sync of a feed that was completed before this one.
    pub async fn full_sync_before(&mut self, feed: &str, sync: Uuid) -> Result<Option<Uuid>, Error> {
        let found: Option<String> =
            on!(self, catalog::STONE_MISSED, [feed, Bare(sync)], fetch_optional, "find a full sync")?
                .record("find a full sync")?;
        Ok(found.and_then(|id| id.parse().ok()))
    }

    /// Ends the run of a sync, with what is to be said in its metadata. False: it had ended.
    pub async fn end_sync_run(
        &mut self,
        run: &RunId,
        status: tidemill_core::run::RunState,
        cause: tidemill_core::run::EndCause,
        metadata: Json,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let ended = on!(
            self,
            catalog::RUN_END,
            [run.as_str(), status.as_str(), cause.as_str(), Doc(metadata.clone()), now],
            execute,
            "end a run"
        )?;
        Ok(ended.count() > 0)
    }

    /// Ends a sync run that its claimer does not plan, as failed or cancelled. False: the claim is gone.
    pub async fn end_sync_claim(
        &mut self,
        run: &RunId,
        holder: &tidemill_core::run::Holder,
        (status, cause): (tidemill_core::run::RunState, tidemill_core::run::EndCause),
        notes: Json,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        self.lock_run(run).await?;
        let Some(found) = self.run(run).await? else { return Ok(false) };
        let is_held = found.status.is_held()
            && holder.epoch.is_none_or(|epoch| epoch == found.epoch)
            && holder.worker.as_ref().is_none_or(|worker| found.claimed_by.as_ref() == Some(worker));
        if !is_held {
            return Ok(false);
        }
        let at = self.time(now);
        on!(self, catalog::RUN_GO, [run.as_str(), at], execute, "start a run")?;
        self.end_sync_run(run, status, cause, notes, now).await
    }

    /// Locks a run until the step ends; its state. The first lock of every step that changes a sync and its run.
    pub async fn lock_run(&mut self, run: &RunId) -> Result<Option<tidemill_core::run::RunState>, Error> {
        let status: Option<String> =
            on!(self, catalog::RUN_LOCK, [run.as_str()], fetch_optional, "lock a run")?
                .record("lock a run")?;
        Ok(status.and_then(|status| status.parse().ok()))
    }

    /// Puts a run into the sync lane.
    pub async fn mark_sync_run(&mut self, run: &RunId) -> Result<(), Error> {
        let lane = tidemill_core::run::Lane::Sync.as_str();
        on!(self, catalog::RUN_LANE, [run.as_str(), lane], execute, "mark a run")?;
        Ok(())
    }

    /// Takes the lease off the run of a sync: its liveness is that of its parts.
    pub async fn unlease_run(&mut self, run: &RunId, now: Option<Timestamp>) -> Result<(), Error> {
        let now = self.time(now);
        on!(self, catalog::RUN_UNLEASE, [run.as_str(), now], execute, "release a run")?;
        Ok(())
    }

    /// Takes a queued run of a sync over, and starts it. Refused where another sync of the feed is before it.
    pub async fn take_over(&mut self, run: &RunId, by: &str, now: Option<Timestamp>) -> Result<(), Error> {
        let now = self.time(now);
        let taken = on!(self, catalog::RUN_TAKE, [run.as_str(), by, now, now], execute, "take a run over")?;
        if taken.count() == 0 {
            let message = format!("run {run} has to wait: another sync of its feed is under way");
            return Err(Error::refused(RefusalCode::NotRetryable, message));
        }
        on!(self, catalog::RUN_GO, [run.as_str(), now], execute, "start a run")?;
        on!(self, catalog::RUN_UNLEASE, [run.as_str(), now], execute, "release a run")?;
        Ok(())
    }

    /// Gives a sync to another attempt, in whatever state it is.
    pub async fn rebind_sync(&mut self, sync: Uuid, run: &RunId) -> Result<(), Error> {
        on!(self, catalog::SYNC_REBIND, [Bare(sync), run.as_str()], execute, "rebind a sync")?;
        Ok(())
    }

    /// The messages of a sync that are live or dead.
    pub async fn messages_of_sync(&mut self, sync: &Sync) -> Result<Vec<SyncMessage>, Error> {
        let id = sync.run_id.to_string();
        on!(self, catalog::MESSAGE_OF_RUN, [id.as_str(), sync.feed.as_str()], fetch_all, "list messages")?
            .records("list messages")
    }
}

/// Which syncs to list; what is not named does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncFilter {
    /// Of this feed.
    pub feed: Option<String>,
    /// Of the feeds of this project.
    pub project: Option<String>,
    /// Older than this one: the last one of the page before.
    pub before: Option<Uuid>,
    /// At most so many.
    pub limit: usize,
}

impl Store {
    /// The messages of a sync that are live or dead.
    pub async fn messages_of_sync(&self, sync: Sync) -> Result<Vec<SyncMessage>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.messages_of_sync(&sync).await })).await
    }

    /// A sync, by its own id or that of its last attempt.
    pub async fn sync(&self, id: String) -> Result<Sync, Error> {
        let wanted = id.clone();
        let found = self
            .read(move |mut tx| {
                Box::pin(async move {
                    if let Ok(run) = wanted.parse::<RunId>()
                        && let Some(sync) = tx.sync_of_run(&run).await?
                    {
                        return Ok(Some(sync));
                    }
                    match wanted.strip_prefix("run-").unwrap_or(&wanted).parse::<Uuid>() {
                        Ok(uuid) => tx.sync(uuid).await,
                        Err(_) => Ok(None),
                    }
                })
            })
            .await?;
        found.ok_or_else(|| Error::unknown_sync(&id))
    }

    /// Counts the partitions of a sync.
    pub async fn read_counts(&self, sync: Uuid) -> Result<PartitionCounts, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.count_partitions(sync).await })).await
    }

    /// The last full sync of a feed that was completed before this one.
    pub async fn full_sync_before(&self, feed: String, sync: Uuid) -> Result<Option<Uuid>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.full_sync_before(&feed, sync).await })).await
    }

    /// Those of the stones that a sync has not seen either.
    pub async fn also_unseen(&self, sync: Uuid, stones: Vec<String>) -> Result<Vec<String>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let stones = Words(stones);
                let binds = (Bare(sync), stones.clone());
                on!(tx, catalog::STONE_ALSO_UNSEEN, [binds.0, binds.1.clone()], fetch_all, "look for stones")?
                    .records("look for stones")
            })
        })
        .await
    }

    /// The last syncs, newest first.
    pub async fn syncs(&self, feed: Option<String>, limit: usize) -> Result<Vec<Sync>, Error> {
        self.list_syncs(SyncFilter { feed, limit, ..SyncFilter::default() }).await
    }

    /// A newer sync of the same feed that was completed, where there is one.
    pub async fn newer_sync(&self, sync: Uuid) -> Result<Option<Uuid>, Error> {
        let newer = self.read(move |mut tx| Box::pin(async move { tx.newer_sync(sync).await })).await?;
        Ok(newer.and_then(|id| id.parse().ok()))
    }

    /// Syncs that a filter lets through, newest first.
    pub async fn list_syncs(&self, filter: SyncFilter) -> Result<Vec<Sync>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
                Ok(on!(
                    tx,
                    catalog::SYNC_LIST,
                    [filter.feed.as_deref(), limit, filter.project.as_deref(), filter.before.map(Bare)],
                    fetch_all,
                    "list syncs"
                )?
                .readable("run_metadata", "run_id"))
            })
        })
        .await
    }

    /// Syncs that are neither completed nor failed, oldest first.
    pub async fn live_syncs(&self, limit: usize) -> Result<Vec<Sync>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.live_syncs(limit).await })).await
    }
}
