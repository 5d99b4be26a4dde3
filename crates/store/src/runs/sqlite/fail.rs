//! Fails a stalled run after an operator has found that its worker is dead.

use super::json::object_of;
use super::{refused_with_hint, retry, run_by_id};
use crate::sqlite::Sqlite;
use crate::{Error, RefusalCode};
use sqlx::SqliteConnection;
use tidemill_core::retry::Successor;
use tidemill_core::run::{ChangeOutcome, EndCause, FailOutcome, FailRun, Run, RunState};
use tidemill_core::{Json, Timestamp};

const ACTION: &str = "fail a run";

pub(in crate::runs) async fn fail(
    conn: &mut SqliteConnection,
    ask: &FailRun,
    now: Timestamp,
) -> Result<FailOutcome, Error> {
    let run = run_by_id(conn, &ask.run_id, ACTION).await?;
    let outcome = match (run.status, run.stalled_at, run.end_cause) {
        (RunState::Running, Some(_), _) => ChangeOutcome::Applied,
        (RunState::Failed, Some(_), Some(EndCause::Lost)) => ChangeOutcome::Duplicate,
        _ => return Err(not_stalled(&run)),
    };
    if outcome == ChangeOutcome::Applied {
        let notes = object_of([
            ("error", Some(Json::from("worker lost"))),
            ("original_worker", run.claimed_by.as_deref().map(Json::from)),
            ("failed_by", Some(Json::from(ask.by.as_str()))),
            ("reason", ask.reason.as_deref().map(Json::from)),
        ]);
        Sqlite::end_run(conn, &run, (RunState::Failed, EndCause::Lost, notes), now, ACTION).await?;
    }
    let successor = if ask.retry {
        // An operator requested this retry, so the budgets are reset.
        let next = Successor { attempt: run.attempt + 1, failures: 0, losses: 0, available_at: None };
        Some(Sqlite::follow_run(conn, &run, &next, now, ACTION).await?)
    } else {
        retry::successor_of(conn, &run.run_id, ACTION).await?
    };
    Ok(FailOutcome { outcome, successor })
}

fn not_stalled(run: &Run) -> Error {
    refused_with_hint(
        RefusalCode::NotRetryable,
        format!("run {} is {}, and not stalled", run.run_id, run.status),
        format!("Run `tidemill run cancel {}` to stop it.", run.run_id),
    )
}
