//! The sweep on SQLite: reads the runs that need a decision, decides in Rust, and writes.
//!
//! Differs from PostgreSQL in two points. No key is ever without a head, so the sweep repairs none. The silence of a
//! worker counts from its last heartbeat, because there is no server whose start is known.

use super::SweptRun;
use crate::codec::{Columns as _, SqlTime};
use crate::sqlite::Sqlite;
use crate::{Class, Error, catalog};
use serde_json::json;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;
use std::collections::BTreeMap;
use tidemill_core::retry::{self, RetryDecision};
use tidemill_core::run::{self, EndCause, Gate, Run, RunEvent, RunState};
use tidemill_core::{Json, RunId, Timestamp};

const ACTION: &str = "sweep";

/// The state of a run's worker, as far as a decision needs it.
#[derive(Debug, Clone, Default)]
struct Signs {
    /// How the worker ended, if it did: `dead` or `stopped`.
    worker_end: Option<String>,
    cancel_deadline_at: Option<Timestamp>,
    /// Whether the worker promised heartbeats: by a process row, a heartbeat or a requested lease length.
    promised: bool,
}

/// The decision about one run.
#[derive(Debug, PartialEq)]
enum Verdict {
    Nothing,
    /// Its start time has come: it can be claimed, or waits in line for its key.
    Open,
    /// Its worker is silent and promised no heartbeats: the run stays, and an operator decides.
    Stall,
    End {
        status: RunState,
        cause: EndCause,
        notes: Json,
        follow: RetryDecision,
    },
}

pub(super) async fn sweep(
    conn: &mut SqliteConnection,
    limit: usize,
    dead_after_secs: f64,
    now: Timestamp,
) -> Result<Vec<SweptRun>, Error> {
    bury_workers(conn, dead_after_secs, now).await?;
    let candidates = candidates(conn, limit, now).await?;
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<&RunId> = candidates.keys().collect();
    let mut swept = Vec::new();
    // Decisions about different runs are independent. Each run has its own savepoint: a run that cannot be handled is
    // left as it is, and the others are swept.
    for run in Sqlite::runs_by_id(conn, &ids, ACTION).await? {
        if swept.len() >= limit {
            break;
        }
        let signs = candidates.get(&run.run_id).cloned().unwrap_or_default();
        savepoint(conn, "SAVEPOINT swept_run").await?;
        match sweep_run(conn, &run, &signs, now).await {
            Ok(one) => {
                savepoint(conn, "RELEASE swept_run").await?;
                swept.extend(one);
            }
            // A full disk is not caused by this run.
            Err(error) if error.class() == Class::Transient => return Err(error),
            Err(error) => {
                savepoint(conn, "ROLLBACK TO swept_run; RELEASE swept_run").await?;
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                super::report_failure(run.run_id.as_str(), &cause.unwrap_or_else(|| error.to_string()));
            }
        }
    }
    Ok(swept)
}

async fn savepoint(conn: &mut SqliteConnection, text: &'static str) -> Result<(), Error> {
    sqlx::query(text).execute(conn).await.map_err(failed)?;
    Ok(())
}

/// Decides one run and writes the result.
async fn sweep_run(
    conn: &mut SqliteConnection,
    run: &Run,
    signs: &Signs,
    now: Timestamp,
) -> Result<Option<SweptRun>, Error> {
    match decide(run, signs, now) {
        Verdict::Nothing => Ok(None),
        Verdict::Open => Sqlite::open_gate(conn, run, now, ACTION).await.map(|()| None),
        Verdict::Stall => Sqlite::stall_run(conn, run, now, ACTION).await.map(|()| None),
        Verdict::End { status, cause, mut notes, follow } => {
            if follow == RetryDecision::Quarantine {
                notes["output_tail"] = output_tail(conn, &run.run_id).await?;
            }
            Sqlite::end_run(conn, run, (status, cause, notes), now, ACTION).await?;
            let successor = match follow {
                RetryDecision::Successor(next) => {
                    Some(Sqlite::follow_run(conn, run, &next, now, ACTION).await?)
                }
                RetryDecision::Nothing | RetryDecision::Quarantine => None,
            };
            Ok(Some(SweptRun { run_id: run.run_id.clone(), action: cause, successor }))
        }
    }
}

/// Gives keys without a live head to the first run in line, and creates missing key rows.
pub(super) async fn repair_keys(conn: &mut SqliteConnection, limit: usize) -> Result<u64, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let removed = sqlx::query(catalog::sqlite(catalog::KEY_REPAIR_REMOVE));
    let removed = removed.bind(limit).execute(&mut *conn).await.map_err(failed)?.rows_affected();
    let made = sqlx::query(catalog::sqlite(catalog::KEY_REPAIR_INSERT));
    let made = made.bind(limit).execute(&mut *conn).await.map_err(failed)?.rows_affected();
    if made > 0 {
        sqlx::query(catalog::sqlite(catalog::KEY_REPAIR_OPEN)).execute(conn).await.map_err(failed)?;
    }
    Ok(removed.max(made))
}

/// Marks worker processes as dead that were silent for too long.
async fn bury_workers(
    conn: &mut SqliteConnection,
    dead_after_secs: f64,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query(catalog::sqlite(catalog::SWEEP_DEAD_WORKERS))
        .bind(SqlTime(now))
        .bind(dead_after_secs)
        .execute(conn)
        .await
        .map_err(failed)?;
    Ok(())
}

async fn candidates(
    conn: &mut SqliteConnection,
    limit: usize,
    now: Timestamp,
) -> Result<BTreeMap<RunId, Signs>, Error> {
    let rows = sqlx::query(catalog::sqlite(catalog::SWEEP_CANDIDATES))
        .bind(SqlTime(now))
        // Reads more than the limit, so that runs that cannot be handled do not use it up.
        .bind(i64::try_from(limit.saturating_mul(4)).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await
        .map_err(failed)?;
    let read = |row: &SqliteRow| -> sqlx::Result<(RunId, Signs)> {
        let cancel_deadline_at = row.time_or_null("cancel_deadline_at")?;
        let worker_end = row.text_or_null("worker_end")?;
        Ok((
            row.run_id("run_id")?,
            Signs { worker_end, cancel_deadline_at, promised: row.truth("is_promised")? },
        ))
    };
    rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(failed)
}

/// Returns the last lines of output of a run, in order.
async fn output_tail(conn: &mut SqliteConnection, run: &RunId) -> Result<Json, Error> {
    let mut lines: Vec<String> = sqlx::query_scalar(catalog::sqlite(catalog::SWEEP_OUTPUT_TAIL))
        .bind(run.as_str())
        .fetch_all(conn)
        .await
        .map_err(failed)?;
    lines.reverse();
    Ok(Json::from(lines))
}

fn failed(source: sqlx::Error) -> Error {
    Error::database(ACTION, source)
}

/// Decides whether and how the sweep ends a run.
fn decide(run: &Run, signs: &Signs, now: Timestamp) -> Verdict {
    let is_past = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
    let is_lost = signs.worker_end.is_some() || is_past(run.lease_until);
    if run.status == RunState::Queued && is_past(run.expires_at) {
        let notes = json!({"cancelled_by": "system", "reason": "Nobody claimed the run before it expired"});
        return end(run, RunEvent::Expire, EndCause::Expired, notes, now);
    }
    if run.gate == Some(Gate::Time) && is_past(run.available_at) {
        return Verdict::Open;
    }
    if !run.status.is_held() {
        return Verdict::Nothing;
    }
    if run.cancel_requested_at.is_some() && (is_lost || is_past(signs.cancel_deadline_at)) {
        let mut notes = json!({});
        if let Some(by) = &run.cancel_requested_by {
            notes["cancelled_by"] = json!(by);
        }
        if let Some(reason) = &run.cancel_reason {
            notes["reason"] = json!(reason);
        }
        return end(run, RunEvent::Cancel, EndCause::CancelGrace, notes, now);
    }
    if run.status == RunState::Running && is_past(run.deadline_at) {
        let error = run.timeout_secs.map(|secs| format!("the run took longer than {secs} s"));
        return end(run, RunEvent::TimeOut, EndCause::TimedOut, json!({"error": error}), now);
    }
    match (is_lost, run.status) {
        (false, _) => Verdict::Nothing,
        (true, RunState::Running) if !signs.promised => Verdict::Stall,
        (true, _) => lose(run, signs, now),
    }
}

/// Decides the end of a run whose worker is dead or silent.
fn lose(run: &Run, signs: &Signs, now: Timestamp) -> Verdict {
    let worker_end = signs.worker_end.as_deref();
    let stopped = worker_end == Some("stopped");
    if run.status != RunState::Claimed {
        let error = if stopped { "worker stopped" } else { "worker lost" };
        let cause = if stopped { EndCause::Interrupted } else { EndCause::Lost };
        let notes = json!({"error": error, "original_worker": run.claimed_by});
        return end(run, RunEvent::Lose, cause, notes, now);
    }
    let reason = match worker_end {
        Some("stopped") => "Stale run (its worker was told to end before the first event)",
        Some(_) => "Stale run (its worker died before the first event)",
        None => "Stale run (claimed for >5 minutes without events)",
    };
    let notes = json!({
        "cancelled_by": "system",
        "original_worker": run.claimed_by,
        "claimed_at": run.started_at.map(|at| at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()),
        "reason": reason,
    });
    let cause = if stopped { EndCause::Interrupted } else { EndCause::Stale };
    if !signs.promised {
        // It is unknown whether the work was started, so no successor is queued.
        return Verdict::End { status: RunState::Cancelled, cause, notes, follow: RetryDecision::Nothing };
    }
    end(run, RunEvent::Expire, cause, notes, now)
}

/// Returns the end that an event leads to, with the decision about a successor.
fn end(run: &Run, event: RunEvent, cause: EndCause, mut notes: Json, now: Timestamp) -> Verdict {
    let Some(status) = run::next(run.status, event) else { return Verdict::Nothing };
    let follow = retry::decide_retry(run, status, cause, now);
    if follow != RetryDecision::Quarantine {
        return Verdict::End { status, cause, notes, follow };
    }
    notes["quarantined"] = json!(true);
    notes["losses"] = json!(run.losses + 1);
    Verdict::End { status, cause: EndCause::Quarantined, notes, follow }
}
