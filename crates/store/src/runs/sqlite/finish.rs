//! Ends runs as their workers report it, with their artifacts, and with a successor if the budget allows one.

use super::super::FinishRun;
use super::{artifact, event, failed, json, refused_with_hint, unknown_run};
use crate::codec::{Columns as _, SqlTime};
use crate::sqlite::Sqlite;
use crate::tx::EitherDatabase;
use crate::{Error, RefusalCode, catalog};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;
use std::collections::{HashMap, HashSet};
use tidemill_core::artifact::NewArtifact;
use tidemill_core::limits::METADATA_BYTES_MAX;
use tidemill_core::retry::{self, RetryDecision};
use tidemill_core::run::{ChangeOutcome, EndCause, FinalStatus, Lane, Run, RunState};
use tidemill_core::{Json, RunId, Timestamp};

const ACTION: &str = "finish runs";

pub(in crate::runs) async fn finish(
    conn: &mut SqliteConnection,
    ends: &[FinishRun],
    worker: Option<&str>,
    now: Timestamp,
) -> Result<Vec<ChangeOutcome>, Error> {
    ends.iter().try_for_each(check)?;
    let distinct: HashSet<&RunId> = ends.iter().map(|end| &end.run_id).collect();
    if distinct.len() == ends.len() {
        return finish_distinct(conn, ends, worker, now).await;
    }
    // A run is named twice: process the reports one by one, so that the second sees the result of the first.
    let mut outcomes = Vec::with_capacity(ends.len());
    for end in ends {
        outcomes.extend(finish_distinct(conn, std::slice::from_ref(end), worker, now).await?);
    }
    Ok(outcomes)
}

/// Finishes runs that are each named once.
async fn finish_distinct(
    conn: &mut SqliteConnection,
    ends: &[FinishRun],
    worker: Option<&str>,
    now: Timestamp,
) -> Result<Vec<ChangeOutcome>, Error> {
    let mut runs = look_up(conn, ends, worker).await?;
    if let Some(unknown) = ends.iter().map(|end| &end.run_id).filter(|id| !runs.contains_key(id)).min() {
        return Err(unknown_run(unknown));
    }
    let mut outcomes = Vec::with_capacity(ends.len());
    let (mut claimed, mut ended, mut rows, mut refused) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for end in ends {
        let Some((run, caller)) = runs.get_mut(&end.run_id) else { return Err(unknown_run(&end.run_id)) };
        if run.lane != Lane::Ops && !run.status.is_terminal() {
            outcomes.push(finish_other_lane(conn, run, end, worker, now).await?);
            continue;
        }
        let outcome = judge(run, *caller, end);
        match outcome {
            ChangeOutcome::Applied => {
                if run.status == RunState::Claimed && end.status != FinalStatus::Cancelled {
                    claimed.push(&end.run_id);
                }
                // From here on `run` is in its final form.
                (run.status, run.end_cause) = ending(end.status);
                run.metadata = json::merged(&run.metadata, &end.metadata);
                let changes = if is_empty(&end.metadata) { Metadata::Kept } else { Metadata::Changed };
                rows.push(row(run, changes));
                ended.push(&end.run_id);
            }
            ChangeOutcome::Duplicate => {}
            ChangeOutcome::Stale => refused.push((&end.run_id, run.epoch)),
        }
        outcomes.push(outcome);
    }
    begin(conn, &claimed, now).await?;
    write(conn, rows, now, ACTION).await?;
    for (run, _) in ended.into_iter().filter_map(|run| runs.get(run)) {
        after(conn, run, now).await?;
    }
    for (run, epoch) in refused {
        event::record_refusal(conn, run, "finish", epoch, worker, now, ACTION).await?;
    }
    Ok(outcomes)
}

/// The end of a graph or a sync belongs to its controller or consolidator, which knows whether its parts have ended. A
/// worker's report may only request a cancel.
async fn finish_other_lane(
    conn: &mut SqliteConnection,
    run: &Run,
    end: &FinishRun,
    worker: Option<&str>,
    now: Timestamp,
) -> Result<ChangeOutcome, Error> {
    if end.status != FinalStatus::Cancelled {
        let problem = format!(
            "run {} is a {}, which ends when its parts have ended; it cannot be finished as {}",
            run.run_id,
            run.lane,
            end.status.as_str()
        );
        let hint = format!("Run `tidemill run cancel {}` to stop it.", run.run_id);
        return Err(refused_with_hint(RefusalCode::BadValue, problem, hint));
    }
    let reason = end.metadata.get("reason").and_then(Json::as_str);
    super::cancel(conn, &run.run_id, worker.unwrap_or("local"), reason, now).await?;
    Ok(ChangeOutcome::Applied)
}

fn check(end: &FinishRun) -> Result<(), Error> {
    if !end.metadata.is_object() {
        return Err(Error::refused(RefusalCode::BadValue, "metadata must be a JSON object"));
    }
    if end.metadata.to_string().len() > METADATA_BYTES_MAX {
        let problem = format!("metadata is larger than {METADATA_BYTES_MAX} bytes");
        return Err(Error::refused(RefusalCode::TooLarge, problem));
    }
    tidemill_core::json::check_text(end.metadata.to_string()).map_err(|problem| {
        Error::refused(RefusalCode::BadValue, format!("metadata {}", problem.with_advice()))
    })
}

/// The relation of the caller of a finish to the run, as `conditions.sql` defines it.
#[derive(Debug, Clone, Copy)]
struct Caller {
    /// Whether this report may end the run.
    is_allowed: bool,
    /// Whether the caller names the current claim of the run.
    is_holder: bool,
}

/// Reads the runs of the reports, without those that do not exist or cannot be read.
async fn look_up(
    conn: &mut SqliteConnection,
    ends: &[FinishRun],
    worker: Option<&str>,
) -> Result<HashMap<RunId, (Run, Caller)>, Error> {
    let reports = ends.iter().map(|end| serde_json::json!([end.run_id, end.status.as_str(), end.epoch]));
    let rows = sqlx::query(catalog::sqlite(catalog::FINISH_LOOKUP))
        .bind(json::list(reports))
        .bind(worker)
        .fetch_all(conn)
        .await
        .map_err(failed(ACTION))?;
    let read = |row: &SqliteRow| -> sqlx::Result<(String, Caller)> {
        let caller = Caller { is_allowed: row.truth("is_allowed")?, is_holder: row.truth("is_holder")? };
        Ok((row.text("run_id")?, caller))
    };
    let callers: HashMap<String, Caller> =
        rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(failed(ACTION))?;
    let runs: Vec<Run> = EitherDatabase::Sqlite(rows).readable("runs", "run_id");
    let pair = |run: Run| {
        let caller = *callers.get(run.run_id.as_str())?;
        Some((run.run_id.clone(), (run, caller)))
    };
    Ok(runs.into_iter().filter_map(pair).collect())
}

fn judge(run: &Run, caller: Caller, end: &FinishRun) -> ChangeOutcome {
    // A repeated report whose first response was lost: from its holder, or a cancel from any caller.
    let again = run.status.as_str() == end.status.as_str()
        && (end.status == FinalStatus::Cancelled || caller.is_holder)
        && matches!(run.end_cause, Some(EndCause::Reported | EndCause::Cancelled))
        && json::contains(&run.metadata, &end.metadata);
    match (caller.is_allowed, again) {
        (true, _) => ChangeOutcome::Applied,
        (false, true) => ChangeOutcome::Duplicate,
        (false, false) => ChangeOutcome::Stale,
    }
}

fn ending(status: FinalStatus) -> (RunState, Option<EndCause>) {
    match status {
        FinalStatus::Success => (RunState::Success, Some(EndCause::Reported)),
        FinalStatus::Failed => (RunState::Failed, Some(EndCause::Reported)),
        FinalStatus::Cancelled => (RunState::Cancelled, Some(EndCause::Cancelled)),
    }
}

fn is_empty(metadata: &Json) -> bool {
    metadata.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Whether an end changes the metadata. Then the metadata of the request is stored separately.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Metadata {
    Kept,
    Changed,
}

/// One row of the list that `finish_runs` reads: the run in its final form.
fn row(run: &Run, metadata: Metadata) -> Json {
    let changed = metadata == Metadata::Changed;
    serde_json::json!([run.run_id, run.status, run.end_cause, run.metadata.to_string(), changed])
}

/// Moves a claimed run through *running* before it ends.
async fn begin(conn: &mut SqliteConnection, claimed: &[&RunId], now: Timestamp) -> Result<(), Error> {
    if claimed.is_empty() {
        return Ok(());
    }
    sqlx::query(catalog::sqlite(catalog::FINISH_START))
        .bind(json::ids(claimed))
        .bind(SqlTime(now))
        .execute(conn)
        .await
        .map_err(failed(ACTION))?;
    Ok(())
}

async fn write(
    conn: &mut SqliteConnection,
    rows: Vec<Json>,
    now: Timestamp,
    action: &'static str,
) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let result = sqlx::query(catalog::sqlite(catalog::FINISH_RUNS))
        .bind(json::list(rows))
        .bind(SqlTime(now))
        .execute(conn)
        .await;
    result.map_err(failed(action))?;
    Ok(())
}

/// Stores the artifacts of an ended run and queues its successor.
async fn after(conn: &mut SqliteConnection, run: &Run, now: Timestamp) -> Result<(), Error> {
    if run.metadata.to_string().len() > METADATA_BYTES_MAX {
        let problem = format!("the merged metadata is larger than {METADATA_BYTES_MAX} bytes");
        return Err(Error::refused(RefusalCode::TooLarge, problem));
    }
    for artifact in NewArtifact::from_metadata(&run.metadata) {
        artifact::put(conn, &run.run_id, &artifact, now, ACTION).await?;
    }
    let cause = run.end_cause.unwrap_or(EndCause::Reported);
    if let RetryDecision::Successor(successor) = retry::decide_retry(run, run.status, cause, now) {
        Sqlite::follow_run(conn, run, &successor, now, ACTION).await?;
    }
    Ok(())
}

impl Sqlite {
    /// Ends a run without a report of its worker.
    pub(crate) async fn end_run(
        conn: &mut SqliteConnection,
        run: &Run,
        (status, cause, notes): (RunState, EndCause, Json),
        now: Timestamp,
        action: &'static str,
    ) -> Result<(), Error> {
        let metadata = json::merged(&run.metadata, &notes);
        let ended = Run { status, end_cause: Some(cause), metadata, ..run.clone() };
        write(conn, vec![row(&ended, Metadata::Changed)], now, action).await
    }
}
