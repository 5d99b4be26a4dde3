//! Cancels a run that waits, at once; asks the worker of a held one to stop.

use super::super::CancelOutcome;
use super::json::{merged, object_of};
use super::{event, failed, run_by_id};
use crate::Error;
use crate::codec::At;
use sqlx::SqliteConnection;
use tidemill_core::event::Level;
use tidemill_core::limits::CANCEL_GRACE_SECS;
use tidemill_core::run::{Lane, RunState};
use tidemill_core::{Json, RunId, Timestamp};

const ACTION: &str = "cancel a run";

pub(in crate::runs) async fn cancel(
    conn: &mut SqliteConnection,
    run: &RunId,
    by: &str,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<CancelOutcome, Error> {
    tidemill_core::request::check_request_by(by, reason)?;
    let run = run_by_id(conn, run, ACTION).await?;
    if run.status.is_terminal() {
        return Ok(CancelOutcome::Ended);
    }
    if run.lane == Lane::Graph {
        cancel_graph(conn, &run.run_id, by, reason, now).await?;
        return Ok(CancelOutcome::Requested);
    }
    if run.status == RunState::Queued {
        let notes = object_of([("cancelled_by", Some(Json::from(by))), ("reason", reason.map(Json::from))]);
        sqlx::query(
            "UPDATE runs SET status = 'cancelled', gate = NULL, finished_at = $2, updated_at = $2, \
             end_cause = 'cancelled', cancel_requested_at = $2, cancel_requested_by = $3, \
             cancel_reason = $4, input = coalesce(input, metadata), metadata = $5 WHERE run_id = $1",
        )
        .bind(run.run_id.as_str())
        .bind(At(now))
        .bind(by)
        .bind(reason)
        .bind(merged(&run.metadata, &notes).to_string())
        .execute(conn)
        .await
        .map_err(failed(ACTION))?;
        return Ok(CancelOutcome::Cancelled);
    }
    if run.cancel_requested_at.is_none() {
        let grace = chrono::Duration::seconds(i64::try_from(CANCEL_GRACE_SECS).unwrap_or(0));
        sqlx::query(
            "UPDATE runs SET cancel_requested_at = $2, cancel_requested_by = $3, cancel_reason = $4, \
             cancel_deadline_at = $5, updated_at = $2 WHERE run_id = $1",
        )
        .bind(run.run_id.as_str())
        .bind(At(now))
        .bind(by)
        .bind(reason)
        .bind(At(now + grace))
        .execute(&mut *conn)
        .await
        .map_err(failed(ACTION))?;
        request(conn, &run.run_id, by, reason, now).await?;
    }
    Ok(CancelOutcome::Requested)
}

/// Asks every live job of a graph to stop, and names the run to the controller. Asked twice, it is one wish.
async fn cancel_graph(
    conn: &mut SqliteConnection,
    run: &RunId,
    by: &str,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    let jobs = "UPDATE jobs SET cancelled_at = $2, cancelled_by = $3 \
                WHERE run_id = $1 AND ended_at IS NULL AND cancelled_at IS NULL";
    let asked = sqlx::query(jobs).bind(run.as_str()).bind(At(now)).bind(by).execute(&mut *conn).await;
    if asked.map_err(failed(ACTION))?.rows_affected() == 0 {
        return Ok(());
    }
    let graph = "UPDATE graphs SET cancelled_at = $2, cancelled_by = $3, cancel_reason = $4 \
                 WHERE run_id = $1 AND cancelled_at IS NULL";
    let graph = sqlx::query(graph).bind(run.as_str()).bind(At(now)).bind(by).bind(reason);
    graph.execute(&mut *conn).await.map_err(failed(ACTION))?;
    request(conn, run, by, reason, now).await?;
    let named = "INSERT INTO job_changes (subject, version) VALUES ($1, 1) \
                 ON CONFLICT (subject) DO UPDATE SET version = version + 1";
    sqlx::query(named).bind(run.as_str()).execute(conn).await.map_err(failed(ACTION))?;
    Ok(())
}

/// Puts the wish on the record of the run.
async fn request(
    conn: &mut SqliteConnection,
    run: &RunId,
    by: &str,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    let payload = object_of([("by", Some(Json::from(by))), ("reason", reason.map(Json::from))]);
    event::record_request(conn, run, (Level::Warn, "Cancel requested", payload), now, ACTION).await?;
    Ok(())
}
