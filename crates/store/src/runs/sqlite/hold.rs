//! Who holds a run: the fence that every report passes, and the signs of life.

use super::super::Holder;
use super::{event, failed, unknown_run};
use crate::Error;
use crate::codec::{At, Columns};
use crate::tx::FromColumns;
use sqlx::SqliteConnection;
use tidemill_core::broken::Break;
use tidemill_core::limits::CANCEL_GRACE_SECS;
use tidemill_core::run::{Applied, Run, RunState};
use tidemill_core::worker::Held;
use tidemill_core::{RunId, Timestamp};

/// A run's status and lease.
pub(super) struct Hold {
    pub(super) status: RunState,
    pub(super) epoch: i32,
    pub(super) claimed_by: Option<String>,
    pub(super) lease_until: Option<Timestamp>,
    pub(super) lease_secs: Option<i32>,
    pub(super) cancel_requested: bool,
}

impl FromColumns for Hold {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            status: row.parsed("status")?,
            epoch: row.int("epoch")?,
            claimed_by: row.text_or_null("claimed_by")?,
            lease_until: row.time_or_null("lease_until")?,
            lease_secs: row.int_or_null("lease_secs")?,
            cancel_requested: row.time_or_null("cancel_requested_at")?.is_some(),
        })
    }
}

impl Hold {
    /// Whether the caller no longer holds the run.
    pub(super) fn is_lost_to(&self, holder: &Holder) -> bool {
        is_stale(self.status, self.epoch, self.claimed_by.as_deref(), holder)
    }

    /// Whether a fifth of the lease is gone: events need not rewrite the run each time.
    pub(super) fn is_due_for_renewal(&self, now: Timestamp) -> bool {
        let (Some(until), Some(secs)) = (self.lease_until, self.lease_secs) else { return false };
        until < now + chrono::Duration::milliseconds(i64::from(secs) * 800)
    }
}

/// Whether a caller that believes this does not hold the run. What it does not know is not held against it.
pub(super) fn is_stale(status: RunState, epoch: i32, claimed_by: Option<&str>, holder: &Holder) -> bool {
    let other_worker = match (claimed_by, holder.worker.as_deref()) {
        (Some(claimed_by), Some(worker)) => claimed_by != worker,
        (Some(_) | None, None) | (None, Some(_)) => false,
    };
    let stale = !status.is_held() || holder.epoch.is_some_and(|known| known != epoch) || other_worker;
    stale && !Break::NoFence.is_on()
}

/// The same for a run that was read whole.
pub(super) fn is_run_stale(run: &Run, holder: &Holder) -> bool {
    is_stale(run.status, run.epoch, run.claimed_by.as_deref(), holder)
}

/// Moves a claimed run to running: the named step that the first event takes.
pub(super) async fn enter_running(
    conn: &mut SqliteConnection,
    run: &RunId,
    now: Timestamp,
    action: &'static str,
) -> Result<(), Error> {
    // A registered worker ends the command itself, and reports it: give it the time to.
    sqlx::query(
        "UPDATE runs SET status = 'running', updated_at = $2, lease_until = $2 + lease_secs * 1000000, \
         deadline_at = $2 + (timeout_secs + iif(worker_id IS NULL, 0, $3)) * 1000000 \
         WHERE run_id = $1 AND status = 'claimed'",
    )
    .bind(run.as_str())
    .bind(At(now))
    .bind(i64::try_from(CANCEL_GRACE_SECS).unwrap_or(i64::MAX))
    .execute(conn)
    .await
    .map_err(failed(action))?;
    Ok(())
}

pub(in crate::runs) async fn start(
    conn: &mut SqliteConnection,
    run: &RunId,
    holder: &Holder,
    now: Timestamp,
) -> Result<Applied, Error> {
    let action = "start a run";
    let hold = read(conn, run, action).await?;
    if hold.is_lost_to(holder) {
        event::record_refusal(conn, run, "start", hold.epoch, holder.worker.as_deref(), now, action).await?;
        return Ok(Applied::Stale);
    }
    if hold.status == RunState::Claimed {
        enter_running(conn, run, now, action).await?;
    }
    Ok(Applied::Applied)
}

pub(in crate::runs) async fn heartbeat(
    conn: &mut SqliteConnection,
    run: &RunId,
    holder: &Holder,
    now: Timestamp,
) -> Result<Held, Error> {
    let action = "renew a lease";
    let hold = read(conn, run, action).await?;
    if hold.is_lost_to(holder) {
        event::record_refusal(conn, run, "heartbeat", hold.epoch, holder.worker.as_deref(), now, action)
            .await?;
        return Ok(Held { held: false, cancel_requested: hold.cancel_requested, lease_until: None });
    }
    let lease_until = renew(conn, run, now, action).await?;
    Ok(Held { held: true, cancel_requested: hold.cancel_requested, lease_until })
}

/// Renews the lease; until when it lasts now.
pub(super) async fn renew(
    conn: &mut SqliteConnection,
    run: &RunId,
    now: Timestamp,
    action: &'static str,
) -> Result<Option<Timestamp>, Error> {
    let until: Option<At> = sqlx::query_scalar(
        "UPDATE runs SET lease_until = $2 + lease_secs * 1000000, updated_at = $2 WHERE run_id = $1 \
         RETURNING lease_until",
    )
    .bind(run.as_str())
    .bind(At(now))
    .fetch_one(conn)
    .await
    .map_err(failed(action))?;
    Ok(until.map(|at| at.0))
}

async fn read(conn: &mut SqliteConnection, run: &RunId, action: &'static str) -> Result<Hold, Error> {
    let row = sqlx::query(
        "SELECT status, epoch, claimed_by, lease_until, lease_secs, cancel_requested_at FROM runs \
         WHERE run_id = $1",
    )
    .bind(run.as_str())
    .fetch_optional(conn)
    .await
    .map_err(failed(action))?;
    let row = row.ok_or_else(|| unknown_run(run))?;
    Hold::read(&row).map_err(failed(action))
}
