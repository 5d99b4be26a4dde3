//! Cancels a run that waits, at once; asks the worker of a held one to stop.

use super::super::Cancelled;
use super::json::{merged, object_of};
use super::{event, failed, run_by_id};
use crate::Error;
use crate::codec::At;
use sqlx::SqliteConnection;
use tidemill_core::event::Level;
use tidemill_core::limits::CANCEL_GRACE_SECS;
use tidemill_core::run::RunState;
use tidemill_core::{Json, RunId, Timestamp};

const ACTION: &str = "cancel a run";

pub(in crate::runs) async fn cancel(
    conn: &mut SqliteConnection,
    run: &RunId,
    by: &str,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<Cancelled, Error> {
    let run = run_by_id(conn, run, ACTION).await?;
    if run.status.is_terminal() {
        return Ok(Cancelled::Ended);
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
        return Ok(Cancelled::Cancelled);
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
        let payload = object_of([("by", Some(Json::from(by))), ("reason", reason.map(Json::from))]);
        let request = (Level::Warn, "Cancel requested", payload);
        event::record_request(conn, &run.run_id, request, now, ACTION).await?;
    }
    Ok(Cancelled::Requested)
}
