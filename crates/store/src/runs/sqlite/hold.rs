//! The fence that every report passes, the start of a run, and heartbeats.

use super::super::Holder;
use super::json::object_of;
use super::{event, failed, unknown_run};
use crate::codec::{Columns, SqlTime};
use crate::sqlite::Sqlite;
use crate::tx::FromColumns;
use crate::{Error, catalog};
use sqlx::SqliteConnection;
use tidemill_core::event::Level;
use tidemill_core::limits::LEASE_SECS;
use tidemill_core::run::{ChangeOutcome, Run, RunState};
use tidemill_core::worker::RunLease;
use tidemill_core::{Json, RunId, Timestamp};

/// The status and the lease of a run.
pub(super) struct Hold {
    pub(super) status: RunState,
    pub(super) epoch: i32,
    pub(super) lease_until: Option<Timestamp>,
    pub(super) lease_secs: Option<i32>,
    pub(super) is_stalled: bool,
    pub(super) cancel_requested: bool,
    /// Whether the caller holds the run: the fence, which is written in `conditions.sql`.
    pub(super) is_held: bool,
}

impl FromColumns for Hold {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            status: row.parsed("status")?,
            epoch: row.int("epoch")?,
            lease_until: row.time_or_null("lease_until")?,
            lease_secs: row.int_or_null("lease_secs")?,
            is_stalled: row.time_or_null("stalled_at")?.is_some(),
            cancel_requested: row.time_or_null("cancel_requested_at")?.is_some(),
            is_held: row.truth("is_held")?,
        })
    }
}

impl Hold {
    /// Whether a fifth of the lease has passed. Events renew the lease only then, to save writes.
    pub(super) fn is_due_for_renewal(&self, now: Timestamp) -> bool {
        let secs = self.lease_secs.map_or(default_lease_secs(), i64::from);
        self.is_stalled
            || self.lease_until.is_some_and(|until| until < now + chrono::Duration::milliseconds(secs * 800))
    }
}

/// Moves a claimed run to *running*, as its first event does.
pub(super) async fn enter_running(
    conn: &mut SqliteConnection,
    run: &RunId,
    now: Timestamp,
    action: &'static str,
) -> Result<(), Error> {
    sqlx::query(catalog::sqlite(catalog::RUN_LEASE_START))
        .bind(run.as_str())
        .bind(SqlTime(now))
        .execute(conn)
        .await
        .map_err(failed(action))?;
    Ok(())
}

impl Sqlite {
    /// Marks a running run whose worker is silent and promised no heartbeats, like `stall_run` on PostgreSQL.
    pub(crate) async fn stall_run(
        conn: &mut SqliteConnection,
        run: &Run,
        now: Timestamp,
        action: &'static str,
    ) -> Result<(), Error> {
        sqlx::query(catalog::sqlite(catalog::RUN_STALL))
            .bind(run.run_id.as_str())
            .bind(SqlTime(now))
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
        sqlx::query(catalog::sqlite(catalog::RUN_STALL_NOTICE))
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
    let hold = read(conn, run, holder, action).await?;
    if !hold.is_held {
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
    let hold = read(conn, run, holder, action).await?;
    if !hold.is_held {
        event::record_refusal(conn, run, "heartbeat", hold.epoch, holder.worker.as_deref(), now, action)
            .await?;
        return Ok(RunLease { held: false, cancel_requested: hold.cancel_requested, lease_until: None });
    }
    let lease_until = renew(conn, run, Promise::Made, now, action).await?;
    Ok(RunLease { held: true, cancel_requested: hold.cancel_requested, lease_until })
}

/// Whether a call promises heartbeats. After a promise, silence means that the worker is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    Made,
    Unchanged,
}

/// The lease of a run whose claim requested no length.
fn default_lease_secs() -> i64 {
    i64::try_from(LEASE_SECS).unwrap_or(i64::MAX)
}

/// Renews the lease and returns its new end.
pub(super) async fn renew(
    conn: &mut SqliteConnection,
    run: &RunId,
    promise: Promise,
    now: Timestamp,
    action: &'static str,
) -> Result<Option<Timestamp>, Error> {
    let until: Option<SqlTime> = sqlx::query_scalar(catalog::sqlite(catalog::RUN_LEASE_EXTEND))
        .bind(run.as_str())
        .bind(SqlTime(now))
        .bind(promise == Promise::Made)
        .fetch_one(conn)
        .await
        .map_err(failed(action))?;
    Ok(until.map(|at| at.0))
}

async fn read(
    conn: &mut SqliteConnection,
    run: &RunId,
    holder: &Holder,
    action: &'static str,
) -> Result<Hold, Error> {
    let row = sqlx::query(catalog::sqlite(catalog::RUN_LEASE_READ))
        .bind(run.as_str())
        .bind(&holder.worker)
        .bind(holder.epoch)
        .fetch_optional(conn)
        .await
        .map_err(failed(action))?;
    let row = row.ok_or_else(|| unknown_run(run))?;
    Hold::read(&row).map_err(failed(action))
}
