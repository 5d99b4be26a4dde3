//! The run of a sync: its lock, lane, lease and end.

use crate::codec::{SqlJson, SqlUuid};
use crate::tx::on;
use crate::{Error, RefusalCode, Tx, catalog};
use tidemill_core::run::{EndCause, Holder, Lane, RunState};
use tidemill_core::{Json, RunId, Timestamp};
use uuid::Uuid;

impl Tx<'_> {
    /// Ends the run of a sync with this metadata. Returns false if it had ended.
    pub async fn end_sync_run(
        &mut self,
        run: &RunId,
        status: RunState,
        cause: EndCause,
        metadata: Json,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let ended = on!(
            self,
            catalog::RUN_END,
            [run.as_str(), status.as_str(), cause.as_str(), SqlJson(metadata.clone()), now],
            execute,
            "end a run"
        )?;
        Ok(ended.count() > 0)
    }

    /// Ends a claimed run for which no sync was planned, as failed or cancelled. Returns false if the claim is lost.
    pub async fn end_sync_claim(
        &mut self,
        run: &RunId,
        holder: &Holder,
        (status, cause): (RunState, EndCause),
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

    /// Locks a run until the transaction ends; returns its state. Every transaction that changes a sync and its run
    /// takes this lock first.
    pub async fn lock_run(&mut self, run: &RunId) -> Result<Option<RunState>, Error> {
        let status: Option<String> =
            on!(self, catalog::RUN_LOCK, [run.as_str()], fetch_optional, "lock a run")?
                .record("lock a run")?;
        Ok(status.and_then(|status| status.parse().ok()))
    }

    /// Moves a run into the sync lane.
    pub async fn mark_sync_run(&mut self, run: &RunId) -> Result<(), Error> {
        let lane = Lane::Sync.as_str();
        on!(self, catalog::RUN_LANE, [run.as_str(), lane], execute, "mark a run")?;
        Ok(())
    }

    /// Removes the lease from the run of a sync, because its liveness is that of its messages.
    pub async fn clear_lease(&mut self, run: &RunId, now: Option<Timestamp>) -> Result<(), Error> {
        let now = self.time(now);
        on!(self, catalog::RUN_UNLEASE, [run.as_str(), now], execute, "release a run")?;
        Ok(())
    }

    /// Takes over a queued run of a sync, and starts it. Refused if another sync of the feed comes first.
    pub async fn adopt_run(&mut self, run: &RunId, by: &str, now: Option<Timestamp>) -> Result<(), Error> {
        let now = self.time(now);
        let taken = on!(self, catalog::RUN_TAKE, [run.as_str(), by, now, now], execute, "take over a run")?;
        if taken.count() == 0 {
            let message = format!("run {run} must wait: another sync of its feed is running");
            return Err(Error::refused(RefusalCode::NotRetryable, message));
        }
        on!(self, catalog::RUN_GO, [run.as_str(), now], execute, "start a run")?;
        on!(self, catalog::RUN_UNLEASE, [run.as_str(), now], execute, "release a run")?;
        Ok(())
    }

    /// Assigns a sync to another attempt, in any state.
    pub async fn rebind_sync(&mut self, sync: Uuid, run: &RunId) -> Result<(), Error> {
        on!(self, catalog::SYNC_REBIND, [SqlUuid(sync), run.as_str()], execute, "rebind a sync")?;
        Ok(())
    }
}
