//! Successors of ended runs: a retry is a run of its own, at most one per run.

use super::super::RetryOutcome;
use super::gate::{self, Arrival};
use super::json::object_of;
use super::{event, failed, run_by_id};
use crate::codec::SqlTime;
use crate::sqlite::Sqlite;
use crate::{Error, RefusalCode, catalog};
use sqlx::SqliteConnection;
use tidemill_core::event::Level;
use tidemill_core::retry::Successor;
use tidemill_core::run::{Gate, Lane, Run, RunState};
use tidemill_core::{Json, RunId, Timestamp};
use uuid::Uuid;

const ACTION: &str = "retry a run";

pub(in crate::runs) async fn retry(
    conn: &mut SqliteConnection,
    run: &RunId,
    by: &str,
    with_jobs: bool,
    now: Timestamp,
) -> Result<RetryOutcome, Error> {
    tidemill_core::request::check_request_by(by, None)?;
    let run = run_by_id(conn, run, ACTION).await?;
    if run.lane == Lane::Graph && !with_jobs {
        // A retried graph without jobs would never end.
        let problem = format!("run {} is a graph and must be retried with its jobs", run.run_id);
        return Err(Error::refused(RefusalCode::NotRetryable, problem));
    }
    if let Some(run_id) = successor_of(conn, &run.run_id, ACTION).await? {
        return Ok(RetryOutcome { run_id, created: false });
    }
    if !matches!(run.status, RunState::Failed | RunState::Cancelled) {
        let problem = format!(
            "run {} is {}, and only a failed or cancelled run can be retried",
            run.run_id, run.status
        );
        return Err(Error::refused(RefusalCode::NotRetryable, problem));
    }
    // An operator requested this retry, so the budgets are reset.
    let successor = Successor { attempt: run.attempt + 1, failures: 0, losses: 0, available_at: None };
    let run_id = queue_successor(conn, &run, &successor, now, ACTION).await?;
    let payload = object_of([("by", Some(Json::from(by))), ("successor", Some(Json::from(run_id.as_str())))]);
    let request = (Level::Info, "Retry requested", payload);
    event::record_request(conn, &run.run_id, request, now, ACTION).await?;
    Ok(RetryOutcome { run_id, created: true })
}

impl Sqlite {
    /// Queues the successor of an ended run. A repeated call returns the same one.
    pub(crate) async fn follow_run(
        conn: &mut SqliteConnection,
        run: &Run,
        successor: &Successor,
        now: Timestamp,
        action: &'static str,
    ) -> Result<RunId, Error> {
        match successor_of(conn, &run.run_id, action).await? {
            Some(there) => Ok(there),
            None => queue_successor(conn, run, successor, now, action).await,
        }
    }
}

pub(super) async fn successor_of(
    conn: &mut SqliteConnection,
    run: &RunId,
    action: &'static str,
) -> Result<Option<RunId>, Error> {
    let found: Option<String> = sqlx::query_scalar(catalog::sqlite(catalog::RUN_SUCCESSOR))
        .bind(run.as_str())
        .fetch_optional(conn)
        .await
        .map_err(failed(action))?;
    found
        .map(|id| id.parse())
        .transpose()
        .map_err(|bad| Error::database(action, sqlx::Error::Decode(Box::new(bad))))
}

async fn queue_successor(
    conn: &mut SqliteConnection,
    run: &Run,
    successor: &Successor,
    now: Timestamp,
    action: &'static str,
) -> Result<RunId, Error> {
    let next = RunId::new(now, Uuid::new_v4());
    // A successor keeps the position of its request in the concurrency key, even while it waits for its start time: a
    // second deploy must not overtake the retry of the first.
    let ready_at = match &run.concurrency_key {
        Some(_) => gate::ready_at(conn, &run.run_id, action).await?,
        None => successor.available_at.map_or(now, |at| at.max(now)),
    };
    let arrival = Arrival {
        run: &next,
        project: &run.project_id,
        key: run.concurrency_key.as_deref(),
        priority: run.priority,
        ready_at,
        available_at: successor.available_at,
    };
    let entered = arrival.enter_key(conn, action).await?;
    let gate = if successor.available_at.is_some_and(|at| at > now) { Gate::Time } else { entered };
    sqlx::query(catalog::sqlite(catalog::RETRY_INSERT))
        .bind(run.run_id.as_str())
        .bind(next.as_str())
        .bind(gate.as_str())
        .bind(SqlTime(ready_at))
        .bind(successor.available_at.map(SqlTime))
        .bind(successor.attempt)
        .bind(successor.failures)
        .bind(successor.losses)
        .bind(SqlTime(now))
        .execute(conn)
        .await
        .map_err(failed(action))?;
    Ok(next)
}
