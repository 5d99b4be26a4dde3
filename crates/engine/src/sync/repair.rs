//! Periodic repair of syncs: locks of dead workers, expired messages, syncs whose run has ended, partitions without a
//! message. It compares the stored states, so the cause of a deviation does not matter.

use super::Syncs;
use super::evaluate::{fail, order_for};
use super::operate::stop;
use super::plan::message_for;
use crate::upkeep::part;
use std::collections::HashSet;
use tidemill_core::Timestamp;
use tidemill_core::alert::AlertKind;
use tidemill_core::queue::{CONSOLIDATE, WORK_ITEMS};
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_store::{Error, Queue as _, SyncMessage, Tx};

const SYNCS_MAX: usize = 100;
/// Added to the generation of a message that replaces a manually removed one.
const MANUAL_GENERATION: i32 = 1_000_000;
/// Messages that are expired or purged in one pass.
const MESSAGES_MAX: usize = 500;

impl Syncs {
    /// Runs all repairs once. A step or a sync that fails does not stop the others; the first error is returned at
    /// the end.
    pub async fn repair(&self) -> Result<(), Error> {
        let (store, now) = (self.engine.store(), self.now());
        let mut failure = None;
        let released = part(&mut failure, store.release_dead(now)).await.unwrap_or_default();
        metrics::counter!("tidemill_locks_released_total").increment(released);
        part(&mut failure, self.prolong_unavailable()).await;
        part(&mut failure, store.expire(MESSAGES_MAX, now)).await;
        part(&mut failure, store.purge(MESSAGES_MAX, now)).await;
        for sync in part(&mut failure, store.live_syncs(SYNCS_MAX)).await.unwrap_or_default() {
            part(&mut failure, self.repair_sync(sync)).await;
        }
        if released > 0 {
            self.wake();
        }
        failure.map_or(Ok(()), Err)
    }

    /// Extends the expiry of messages whose feed is paused or down.
    async fn prolong_unavailable(&self) -> Result<(), Error> {
        let unavailable = self.unavailable_feeds().await?;
        if !unavailable.is_empty() {
            self.engine.store().prolong(unavailable, self.now()).await?;
        }
        Ok(())
    }

    async fn repair_sync(&self, sync: Sync) -> Result<(), Error> {
        let (id, now) = (sync.run_id, self.now());
        let store = self.engine.store();
        let step = store.write(move |mut tx| Box::pin(async move { repair_one(&mut tx, &sync, now).await }));
        if !step.await? {
            self.evaluate(id).await?;
        }
        Ok(())
    }
}

/// Syncs that are removed in one transaction: each may have thousands of pages.
const PRUNE_BATCH: usize = 4;

impl Syncs {
    /// Removes syncs that ended before the retention period, and returns their number.
    pub async fn prune(&self) -> Result<u64, Error> {
        let store = self.engine.store();
        let retention = chrono::TimeDelta::days(i64::from(tidemill_core::limits::SYNC_RETENTION_DAYS));
        let before = store.now(self.now()).await? - retention;
        let mut removed = 0;
        loop {
            let pruned = store.prune_syncs(before, PRUNE_BATCH).await?;
            removed += pruned;
            if pruned < PRUNE_BATCH as u64 {
                return Ok(removed);
            }
        }
    }
}

/// Aligns one sync with its run and its messages. Returns whether the sync has ended.
async fn repair_one(tx: &mut Tx<'_>, sync: &Sync, now: Option<Timestamp>) -> Result<bool, Error> {
    let run = tx.lock_run(&sync.ops_run_id).await?;
    let Some(sync) = tx.lock_sync(sync.run_id).await? else { return Ok(true) };
    if !sync.state.is_live() {
        return Ok(true);
    }
    if run.is_none_or(RunState::is_terminal) {
        let reason = format!("its run was ended as {}", run.map_or("unknown", RunState::as_str));
        tx.fail_open_partitions(sync.run_id, &reason, now).await?;
        let counts = tx.count_partitions(sync.run_id).await?;
        tx.write_counts(sync.run_id, counts, now).await?;
        tx.move_sync(sync.run_id, sync.state, SyncState::Failed, Some(&reason), now).await?;
        return Ok(true);
    }
    let cancelled = tx.run(&sync.ops_run_id).await?.filter(|run| run.cancel_requested_at.is_some());
    if let Some(run) = cancelled {
        // No worker holds the run of a sync, so a cancel request is executed here.
        let by = run.cancel_requested_by.as_deref().unwrap_or("an operator");
        stop(tx, &sync, by, run.cancel_reason.as_deref(), now).await?;
        return Ok(true);
    }
    let messages = tx.messages_of_sync(&sync).await?;
    match sync.state {
        SyncState::Created | SyncState::WorkersRunning => {
            repair_partitions(tx, &sync, &messages, now).await?;
        }
        SyncState::ConsolidationTriggered | SyncState::Consolidating => {
            let generations = [sync.generation, sync.generation + MANUAL_GENERATION];
            let ours = |message: &&SyncMessage| {
                message.queue == CONSOLIDATE && generations.contains(&message.generation)
            };
            let dead = messages.iter().filter(ours).find(|message| message.is_dead);
            if let Some(dead) = dead {
                let last = dead.last_error.as_deref().unwrap_or("its consolidators were lost");
                let reason = format!("consolidation was given up ({}): {last}", dead.dead_reason);
                fail(tx, &sync, AlertKind::ConsolidationFailed, &reason, now).await?;
                return Ok(true);
            }
            if !messages.iter().any(|message| message.queue == CONSOLIDATE && !message.is_dead) {
                // The message was deleted manually; without it, the sync would never complete.
                let order = order_for(&sync, generations[1], sync.forced);
                tx.send_messages(&[order], now).await?;
            }
        }
        SyncState::Completed | SyncState::Failed => {}
    }
    Ok(false)
}

/// Fails open partitions whose message is dead, and sends a message for those that have none.
async fn repair_partitions(
    tx: &mut Tx<'_>,
    sync: &Sync,
    messages: &[SyncMessage],
    now: Option<Timestamp>,
) -> Result<(), Error> {
    let live: HashSet<&str> = messages
        .iter()
        .filter(|message| message.queue == WORK_ITEMS && !message.is_dead)
        .filter_map(|message| message.partition())
        .collect();
    for partition in tx.partitions(sync.run_id).await? {
        if !partition.state.is_open() || live.contains(partition.partition_id.as_str()) {
            continue;
        }
        let name = partition.partition_id.as_str();
        let dead = messages.iter().find(|message| message.is_dead && message.partition() == Some(name));
        if let Some(dead) = dead {
            let last = dead.last_error.as_deref().unwrap_or("its workers were lost");
            let reason = format!("its page was given up ({}): {last}", dead.dead_reason);
            let offset = partition.next_offset;
            tx.fail_partition(sync.run_id, name, offset, &reason, now).await?;
        } else {
            // Only a manual deletion leads here. The generation is one that no retry reaches, so that the new
            // message is not taken for one that was already completed.
            let mut message = message_for(sync, &partition);
            message.generation += MANUAL_GENERATION;
            tx.send_messages(&[message], now).await?;
        }
    }
    Ok(())
}
