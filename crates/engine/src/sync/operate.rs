//! Operator commands for syncs: status, retry, cancel, consolidate.

use super::Syncs;
use super::evaluate::trigger;
use super::plan::{record_event, superseded};
use tidemill_core::Timestamp;
use tidemill_core::event::Level;
use tidemill_core::records::{ConsolidationOrder, Sync, SyncRetry, SyncStatus};
use tidemill_core::run::{EndCause, RunState};
use tidemill_core::sync::SyncState;
use tidemill_store::{Error, Refusal, RefusalCode, Tx};
use uuid::Uuid;

impl Syncs {
    /// Returns a sync with its partitions.
    pub async fn status(&self, id: &str) -> Result<SyncStatus, Error> {
        let sync = self.engine.store().sync(id.to_owned()).await?;
        let partitions = self.engine.store().partitions(sync.run_id).await?;
        let newer = self.engine.store().newer_sync(sync.run_id).await?;
        Ok(SyncStatus { sync, partitions, newer })
    }

    /// Queues a retry of a failed sync. Only its failed partitions are read again, from where they stopped or, with
    /// `restart`, from their beginning. Idempotent.
    pub async fn retry_sync(
        &self,
        id: &str,
        restart: bool,
        partition: Option<String>,
        by: &str,
    ) -> Result<SyncRetry, Error> {
        let found = self.engine.store().sync(id.to_owned()).await?;
        let (id, by, now) = (found.run_id, by.to_owned(), self.now());
        let retried = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(known) = tx.sync(id).await? else { return Err(gone(id)) };
                    tx.lock_run(&known.ops_run_id).await?;
                    let Some(sync) = tx.lock_sync(id).await? else { return Err(gone(id)) };
                    if let Some(newer) = tx.newer_sync(id).await? {
                        return Err(superseded(&sync, &newer));
                    }
                    if sync.state != SyncState::Failed {
                        return existing_retry(&mut tx, &sync, restart).await;
                    }
                    // Before the check for a queued retry: a retry that has not started yet uses this setting.
                    if restart
                        && tx.request_restart(id, partition.as_deref()).await? == 0
                        && let Some(partition) = partition
                    {
                        let message = format!("sync {id} has no failed partition `{partition}`");
                        return Err(Error::refused(RefusalCode::BadValue, message));
                    }
                    if let Some(run_id) = tx.successor(&sync.ops_run_id).await? {
                        return Ok(SyncRetry { sync: id, run_id, created: false });
                    }
                    let retried = tx.retry_run(&sync.ops_run_id, &by, now).await?;
                    tx.mark_sync_run(&retried.run_id).await?;
                    Ok(SyncRetry { sync: id, run_id: retried.run_id, created: retried.created })
                })
            })
            .await?;
        self.engine.store().wake_soon();
        self.wake();
        Ok(retried)
    }

    /// Cancels a sync: its open partitions fail, and its run is cancelled.
    pub async fn cancel_sync(&self, id: &str, by: &str, reason: Option<&str>) -> Result<bool, Error> {
        let found = self.engine.store().sync(id.to_owned()).await?;
        let (id, now, by, reason) = (found.run_id, self.now(), by.to_owned(), reason.map(str::to_owned));
        let stopped = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.lock_run(&found.ops_run_id).await?;
                    let Some(sync) = tx.lock_sync(id).await? else { return Err(gone(id)) };
                    if !sync.state.is_live() {
                        tx.skip_audit();
                        return Ok(false);
                    }
                    stop(&mut tx, &sync, &by, reason.as_deref(), now).await?;
                    Ok(true)
                })
            })
            .await?;
        self.wake();
        Ok(stopped)
    }

    /// Consolidates a failed sync: continues an abandoned consolidation or, with `force`, consolidates without the
    /// failed partitions. Refused while a partition is open.
    pub async fn consolidate_sync(
        &self,
        id: &str,
        force: bool,
        advance: bool,
        by: &str,
    ) -> Result<ConsolidationOrder, Error> {
        let found = self.engine.store().sync(id.to_owned()).await?;
        let (id, now, by) = (found.run_id, self.now(), by.to_owned());
        let ordered = self
            .engine
            .store()
            .write(move |mut tx| Box::pin(async move { order(&mut tx, id, force, advance, &by, now).await }))
            .await?;
        self.wake();
        Ok(ordered)
    }
}

/// Cancels a live sync that the caller has locked together with its run.
pub(super) async fn stop(
    tx: &mut Tx<'_>,
    sync: &Sync,
    by: &str,
    reason: Option<&str>,
    now: Option<Timestamp>,
) -> Result<(), Error> {
    let text = format!("cancelled by {by}{}", reason.map(|why| format!(": {why}")).unwrap_or_default());
    let id = sync.run_id;
    tx.fail_open_partitions(id, &text, now).await?;
    let counts = tx.count_partitions(id).await?;
    tx.write_counts(id, counts, now).await?;
    tx.move_sync(id, sync.state, SyncState::Failed, Some(&text), now).await?;
    record_event(tx, sync, Level::Warn, &text, now).await?;
    let metadata = serde_json::json!({"sync": id, "cancelled_by": by, "reason": text});
    tx.end_sync_run(&sync.ops_run_id, RunState::Cancelled, EndCause::Cancelled, metadata, now).await?;
    Ok(())
}

async fn order(
    tx: &mut Tx<'_>,
    id: Uuid,
    force: bool,
    advance: bool,
    by: &str,
    now: Option<Timestamp>,
) -> Result<ConsolidationOrder, Error> {
    let Some(known) = tx.sync(id).await? else { return Err(gone(id)) };
    tx.lock_run(&known.ops_run_id).await?;
    let Some(sync) = tx.lock_sync(id).await? else { return Err(gone(id)) };
    let counts = tx.count_partitions(id).await?;
    let open = counts.expected - counts.completed - counts.failed;
    if sync.state != SyncState::Failed {
        let message = format!("sync {id} is already {}; nothing to consolidate", sync.state);
        return Err(Error::refused(RefusalCode::NotRetryable, message));
    }
    if open > 0 {
        let message =
            format!("{open} partitions of sync {id} are still open; wait for them or cancel the sync");
        return Err(Error::refused(RefusalCode::NotRetryable, message));
    }
    if let Some(newer) = tx.newer_sync(id).await? {
        return Err(superseded(&sync, &newer));
    }
    if counts.failed > 0 && !force {
        return Err(Error::Refused(Refusal {
            code: RefusalCode::NotRetryable,
            message: format!("{} of {} partitions of sync {id} failed", counts.failed, counts.expected),
            hint: Some(format!("tidemill sync retry {id}, or --force to consolidate without them")),
        }));
    }
    // The failed run stays failed; a successor executes the order and is running from the start.
    let retried = tx.retry_run(&sync.ops_run_id, by, now).await?;
    tx.mark_sync_run(&retried.run_id).await?;
    tx.adopt_run(&retried.run_id, by, now).await?;
    tx.rebind_sync(id, &retried.run_id).await?;
    let sync = Sync { ops_run_id: retried.run_id, ..sync };
    if !trigger(tx, &sync, force && counts.failed > 0, advance && counts.failed > 0, now).await? {
        return Err(Error::refused(
            RefusalCode::NotRetryable,
            format!("sync {id} has changed meanwhile; try again"),
        ));
    }
    record_event(tx, &sync, Level::Info, &format!("consolidation ordered by {by}"), now).await?;
    Ok(ConsolidationOrder {
        sync: id,
        forced: force && counts.failed > 0,
        advance: advance && counts.failed > 0,
    })
}

/// Answers a retry of a sync that has not failed.
async fn existing_retry(tx: &mut Tx<'_>, sync: &Sync, restart: bool) -> Result<SyncRetry, Error> {
    let run = tx.run(&sync.ops_run_id).await?;
    if sync.state.is_live() && restart {
        return Err(Error::Refused(Refusal {
            code: RefusalCode::NotRetryable,
            message: format!("sync {} is still running and cannot be restarted", sync.run_id),
            hint: Some(format!("tidemill sync cancel {}", sync.run_id)),
        }));
    }
    if sync.state.is_live() && run.is_some_and(|run| run.retry_of.is_some()) {
        return Ok(SyncRetry { sync: sync.run_id, run_id: sync.ops_run_id.clone(), created: false });
    }
    let message = format!("sync {} is {} and cannot be retried", sync.run_id, sync.state);
    Err(Error::refused(RefusalCode::NotRetryable, message))
}

fn gone(id: Uuid) -> Error {
    Error::refused(RefusalCode::UnknownSync, format!("sync `{id}` does not exist"))
}
