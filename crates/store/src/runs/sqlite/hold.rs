//! Who holds a run: the fence that every report passes, and the signs of life.

use super::super::Holder;
use super::json::object_of;
use super::{event, failed, unknown_run};
use crate::Error;
use crate::codec::{At, Columns};
use crate::sqlite::Sqlite;
use crate::tx::FromColumns;
use sqlx::SqliteConnection;
use tidemill_core::broken::Break;
use tidemill_core::event::Level;
use tidemill_core::limits::{CANCEL_GRACE_SECS, LEASE_SECS};
use tidemill_core::run::{ChangeOutcome, Run, RunState};
use tidemill_core::worker::RunLease;
use tidemill_core::{Json, RunId, Timestamp};

/// A run's status and lease.
pub(super) struct Hold {
    pub(super) status: RunState,
    pub(super) epoch: i32,
    pub(super) claimed_by: Option<String>,
    pub(super) lease_until: Option<Timestamp>,
    pub(super) lease_secs: Option<i32>,
    pub(super) is_stalled: bool,
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
            is_stalled: row.time_or_null("stalled_at")?.is_some(),
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
        let secs = self.lease_secs.map_or(default_lease_secs(), i64::from);
        self.is_stalled
            || self.lease_until.is_some_and(|until| until < now + chrono::Duration::milliseconds(secs * 800))
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
        "UPDATE runs SET status = 'running', updated_at = $2, lease_until = $2 + coalesce(lease_secs, $4) * 1000000, \
         deadline_at = $2 + (timeout_secs + iif(worker_id IS NULL, 0, $3)) * 1000000 \
         WHERE run_id = $1 AND status = 'claimed'",
    )
    .bind(run.as_str())
    .bind(At(now))
    .bind(i64::try_from(CANCEL_GRACE_SECS).unwrap_or(i64::MAX))
    .bind(default_lease_secs())
    .execute(conn)
    .await
    .map_err(failed(action))?;
    Ok(())
}

impl Sqlite {
    /// Marks a running run whose worker is silent and has promised nothing. The twin of `stall_run` on PostgreSQL.
    pub(crate) async fn stall_run(
        conn: &mut SqliteConnection,
        run: &Run,
        now: Timestamp,
        action: &'static str,
    ) -> Result<(), Error> {
        sqlx::query("UPDATE runs SET stalled_at = $2, lease_until = NULL, updated_at = $2 WHERE run_id = $1")
            .bind(run.run_id.as_str())
            .bind(At(now))
            .execute(&mut *conn)
            .await
            .map_err(failed(action))?;
        let silent = run.lease_until.map(|until| until - chrono::Duration::seconds(default_lease_secs()));
        let payload = object_of([
            ("worker_id", run.claimed_by.as_deref().map(Json::from)),
            ("silent_since", silent.map(|at| Json::from(at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()))),
        ]);
        let message = "Run stalled: no sign of life from its worker";
        event::record_request(conn, &run.run_id, (Level::Warn, message, payload), now, action).await?;
        sqlx::query("INSERT INTO run_notices (run_id) VALUES ($1) ON CONFLICT DO NOTHING")
            .bind(run.run_id.as_str())
            .execute(conn)
            .await
            .map_err(failed(action))?;
        Ok(())
    }
}

pub(in crate::runs) async fn start(
    conn: &mut SqliteConnection,
    run: &RunId,
    holder: &Holder,
    now: Timestamp,
) -> Result<ChangeOutcome, Error> {
    let action = "start a run";
    let hold = read(conn, run, action).await?;
    if hold.is_lost_to(holder) {
        event::record_refusal(conn, run, "start", hold.epoch, holder.worker.as_deref(), now, action).await?;
        return Ok(ChangeOutcome::Stale);
    }
    if hold.status == RunState::Claimed {
        enter_running(conn, run, now, action).await?;
    }
    Ok(ChangeOutcome::Applied)
}

pub(in crate::runs) async fn heartbeat(
    conn: &mut SqliteConnection,
    run: &RunId,
    holder: &Holder,
    now: Timestamp,
) -> Result<RunLease, Error> {
    let action = "renew a lease";
    let hold = read(conn, run, action).await?;
    if hold.is_lost_to(holder) {
        event::record_refusal(conn, run, "heartbeat", hold.epoch, holder.worker.as_deref(), now, action)
            .await?;
        return Ok(RunLease { held: false, cancel_requested: hold.cancel_requested, lease_until: None });
    }
    let lease_until = renew(conn, run, Promise::Made, now, action).await?;
    Ok(RunLease { held: true, cancel_requested: hold.cancel_requested, lease_until })
}

/// Whether a sign of life promises more of them: from then on, silence means that the worker is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    Made,
    Unchanged,
}

/// The lease of a run whose claim asked for none.
fn default_lease_secs() -> i64 {
    i64::try_from(LEASE_SECS).unwrap_or(i64::MAX)
}

/// Renews the lease; until when it lasts now.
pub(super) async fn renew(
    conn: &mut SqliteConnection,
    run: &RunId,
    promise: Promise,
    now: Timestamp,
    action: &'static str,
) -> Result<Option<Timestamp>, Error> {
    let until: Option<At> = sqlx::query_scalar(
        "UPDATE runs SET lease_until = $2 + coalesce(lease_secs, $3) * 1000000, stalled_at = NULL, \
         lease_secs = iif($4, coalesce(lease_secs, $3), lease_secs), updated_at = $2 \
         WHERE run_id = $1 RETURNING lease_until",
    )
    .bind(run.as_str())
    .bind(At(now))
    .bind(default_lease_secs())
    .bind(promise == Promise::Made)
    .fetch_one(conn)
    .await
    .map_err(failed(action))?;
    Ok(until.map(|at| at.0))
}

async fn read(conn: &mut SqliteConnection, run: &RunId, action: &'static str) -> Result<Hold, Error> {
    let row = sqlx::query(
        "SELECT status, epoch, claimed_by, lease_until, lease_secs, stalled_at, cancel_requested_at FROM runs \
         WHERE run_id = $1",
    )
    .bind(run.as_str())
    .fetch_optional(conn)
    .await
    .map_err(failed(action))?;
    let row = row.ok_or_else(|| unknown_run(run))?;
    Hold::read(&row).map_err(failed(action))
}
