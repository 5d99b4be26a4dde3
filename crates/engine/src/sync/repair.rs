//! What nobody else will decide: locks of dead workers, messages that expired, syncs whose run ended, partitions
//! without a message. Found by looking at what is there, so that it does not matter how it came about.

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

/// Syncs in one pass.
const SYNCS_MAX: usize = 100;
/// Added to the generation of a message that somebody took away.
const HAND_GENERATION: i32 = 1_000_000;
/// Messages in one pass.
const MESSAGES_MAX: usize = 500;

impl Syncs {
    /// Looks after everything once. A part or a sync that fails does not keep the others from being looked after; the
    /// first error is returned at the end.
    pub async fn repair(&self) -> Result<(), Error> {
        let (store, now) = (self.engine.store(), self.now());
        let mut failure = None;
        let released = part(&mut failure, store.release_dead(now)).await.unwrap_or_default();
        metrics::counter!("tidemill_locks_released_total").increment(released);
        part(&mut failure, self.prolong_at_rest()).await;
        part(&mut failure, store.expire(MESSAGES_MAX, now)).await;
        part(&mut failure, store.purge(MESSAGES_MAX, now)).await;
        for sync in part(&mut failure, store.live_syncs(SYNCS_MAX)).await.unwrap_or_default() {
            part(&mut failure, self.repair_sync(sync)).await;
        }
        if released > 0 {
            self.ring();
        }
        failure.map_or(Ok(()), Err)
    }

    /// What waits for a feed that is held or down is not given up because of that.
    async fn prolong_at_rest(&self) -> Result<(), Error> {
        let at_rest = self.feeds_at_rest().await?;
        if !at_rest.is_empty() {
            self.engine.store().prolong(at_rest, self.now()).await?;
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
    /// Removes syncs that ended longer ago than they are kept; how many.
    pub async fn prune(&self) -> Result<u64, Error> {
        let store = self.engine.store();
        let kept = chrono::TimeDelta::days(i64::from(tidemill_core::limits::SYNC_RETENTION_DAYS));
        let before = store.now(self.now()).await? - kept;
        let mut gone = 0;
        loop {
            let pruned = store.prune_syncs(before, PRUNE_BATCH).await?;
            gone += pruned;
            if pruned < PRUNE_BATCH as u64 {
                return Ok(gone);
            }
        }
    }
}

/// Brings one sync in line with its run and its messages; whether that ended it.
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
    let asked = tx.run(&sync.ops_run_id).await?.filter(|run| run.cancel_requested_at.is_some());
    if let Some(run) = asked {
        // No worker holds the run of a sync: whoever asked it to stop is heard here.
        let by = run.cancel_requested_by.as_deref().unwrap_or("somebody");
        stop(tx, &sync, by, run.cancel_reason.as_deref(), now).await?;
        return Ok(true);
    }
    let messages = tx.messages_of_sync(&sync).await?;
    match sync.state {
        SyncState::Created | SyncState::WorkersRunning => {
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
                let dead =
                    messages.iter().find(|message| message.is_dead && message.partition() == Some(name));
                if let Some(dead) = dead {
                    let last = dead.last_error.as_deref().unwrap_or("its workers were lost");
                    let reason = format!("its page was given up ({}): {last}", dead.dead_reason);
                    let offset = partition.next_offset;
                    tx.fail_partition(sync.run_id, name, offset, &reason, now).await?;
                } else {
                    // Nothing that we do leads here; somebody's hand may have. The generation is one that no retry
                    // reaches, so that the message is not taken for one that was carried out.
                    let mut message = message_for(&sync, &partition);
                    message.generation += HAND_GENERATION;
                    tx.send_messages(&[message], now).await?;
                }
            }
        }
        SyncState::ConsolidationTriggered | SyncState::Consolidating => {
            let generations = [sync.generation, sync.generation + HAND_GENERATION];
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
                // Somebody's hand again: nobody would ever complete it.
                let order = order_for(&sync, generations[1], sync.forced);
                tx.send_messages(&[order], now).await?;
            }
        }
        SyncState::Completed | SyncState::Failed => {}
    }
    Ok(false)
}
