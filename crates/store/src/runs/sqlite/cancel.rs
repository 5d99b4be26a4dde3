//! Cancels a queued run at once, and requests the worker of a held run to stop.

use super::super::CancelOutcome;
use super::json::{merged, object_of};
use super::{event, failed, run_by_id};
use crate::codec::SqlTime;
use crate::{Error, catalog};
use sqlx::SqliteConnection;
use tidemill_core::event::Level;
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
        sqlx::query(catalog::sqlite(catalog::CANCEL_QUEUED))
            .bind(run.run_id.as_str())
            .bind(SqlTime(now))
            .bind(by)
            .bind(reason)
            .bind(merged(&run.metadata, &notes).to_string())
            .execute(conn)
            .await
            .map_err(failed(ACTION))?;
        return Ok(CancelOutcome::Cancelled);
    }
    if run.cancel_requested_at.is_none() {
        sqlx::query(catalog::sqlite(catalog::CANCEL_REQUEST))
            .bind(run.run_id.as_str())
            .bind(SqlTime(now))
            .bind(by)
            .bind(reason)
            .execute(&mut *conn)
            .await
            .map_err(failed(ACTION))?;
        request(conn, &run.run_id, by, reason, now).await?;
    }
    Ok(CancelOutcome::Requested)
}

/// Requests a stop of every live job of a graph, and notifies the controller. The call is idempotent.
async fn cancel_graph(
    conn: &mut SqliteConnection,
    run: &RunId,
    by: &str,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    let jobs =
        sqlx::query(catalog::sqlite(catalog::CANCEL_JOBS)).bind(run.as_str()).bind(SqlTime(now)).bind(by);
    let cancelled = jobs.execute(&mut *conn).await.map_err(failed(ACTION))?;
    if cancelled.rows_affected() == 0 {
        return Ok(());
    }
    let graph = sqlx::query(catalog::sqlite(catalog::CANCEL_GRAPH));
    let graph = graph.bind(run.as_str()).bind(SqlTime(now)).bind(by).bind(reason);
    graph.execute(&mut *conn).await.map_err(failed(ACTION))?;
    request(conn, run, by, reason, now).await?;
    let change = sqlx::query(catalog::sqlite(catalog::CHANGE_PUT)).bind(run.as_str());
    change.execute(conn).await.map_err(failed(ACTION))?;
    Ok(())
}

/// Records the cancel request as an event of the run.
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
