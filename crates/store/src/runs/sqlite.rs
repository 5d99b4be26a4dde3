//! The verbs on SQLite: what the PostgreSQL functions do, as statements, with the decisions in Rust.
//!
//! A verb runs in the writer's savepoint: nobody else writes, so no row is locked and nothing changes between
//! two statements; an error undoes the whole verb. Each statement is a trip to the thread that owns the
//! connection, so a verb reads once, decides, and writes lists as one JSON text. Transition events, and the
//! passing on of a concurrency key at an end, belong to the triggers: a plain SQL statement must have them
//! too.
//!
//! Write `LIMIT +$1`, not `LIMIT $1`: SQLite compiles a statement anew whenever a bare parameter of LIMIT is
//! bound, which for the claim takes ten times as long as the claim.

mod artifact;
mod cancel;
mod claim;
mod event;
mod fail;
mod finish;
mod gate;
mod hold;
mod json;
mod queue;
mod retry;

pub(super) use artifact::add_artifact;
pub(super) use cancel::cancel;
pub(super) use claim::claim;
pub(super) use event::append;
pub(super) use fail::fail;
pub(super) use finish::finish;
pub(super) use hold::{heartbeat, start};
pub(super) use queue::queue;
pub(super) use retry::retry;

use crate::sqlite::Sqlite;
use crate::tx::Of;
use crate::{Error, Refusal, RefusalCode};
use sqlx::SqliteConnection;
use tidemill_core::RunId;
use tidemill_core::run::Run;

/// Runs by their ids, in the order in which they are named; those that do not exist are left out.
const RUNS_BY_ID: &str = "\
    SELECT r.run_id, r.project_id, r.env_id, r.lane, r.status, r.gate, r.git_sha, r.git_ref, r.metadata, \
           r.idempotency_key, r.priority, s.labels, r.concurrency_key, r.available_at, r.expires_at, \
           r.timeout_secs, r.attempt, r.failures, r.losses, r.max_attempts, r.max_losses, r.backoff_secs, \
           r.retry_of, r.claimed_by, r.worker_id, r.epoch, r.lease_until, r.deadline_at, \
           r.cancel_requested_at, r.cancel_requested_by, r.cancel_reason, r.stalled_at, r.end_cause, r.queued_at, \
           r.started_at, r.finished_at, r.created_at, r.updated_at \
      FROM json_each($1) asked \
     CROSS JOIN runs r ON r.run_id = asked.value \
      JOIN shelves s ON s.shelf_id = r.shelf_id \
     ORDER BY asked.key";

/// Steps that the sweeper takes too. They hang on [`Sqlite`] because this module is private to the verbs.
impl Sqlite {
    /// Reads runs by their ids; those that do not exist or cannot be read are left out.
    pub(crate) async fn runs_by_id(
        conn: &mut SqliteConnection,
        runs: &[&RunId],
        action: &'static str,
    ) -> Result<Vec<Run>, Error> {
        let rows = sqlx::query(RUNS_BY_ID)
            .bind(json::ids(runs))
            .fetch_all(conn)
            .await
            .map_err(|source| Error::database(action, source))?;
        Ok(Of::Sqlite(rows).readable("runs", "run_id"))
    }
}

/// Reads a run, or refuses.
async fn run_by_id(conn: &mut SqliteConnection, run: &RunId, action: &'static str) -> Result<Run, Error> {
    Sqlite::runs_by_id(conn, &[run], action).await?.pop().ok_or_else(|| unknown_run(run))
}

/// Turns what the database said into our error.
fn failed(action: &'static str) -> impl Fn(sqlx::Error) -> Error {
    move |source| Error::database(action, source)
}

fn unknown_run(run: &RunId) -> Error {
    Error::refused(RefusalCode::UnknownRun, format!("run `{run}` does not exist"))
}

/// A refusal that says what to do.
fn refused_with_hint(code: RefusalCode, message: String, hint: impl Into<String>) -> Error {
    Error::Refused(Refusal { code, message, hint: Some(hint.into()) })
}

/// A bound as SQLite counts.
fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
    use crate::codec::Columns as _;
    use sqlx::{AssertSqlSafe, Connection as _};

    /// No verb may slow down with the number of runs or events: plans look rows up, one by one. What they may
    /// read through is short: shelves (`s`), lists that were passed, and what the statement itself has
    /// collected.
    #[tokio::test]
    async fn no_verb_reads_through_runs_or_events() {
        let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let kernel = include_str!("../../migrations/sqlite/0001_kernel.sql");
        let columns = [
            include_str!("../../migrations/sqlite/0012_drain.sql"),
            // Migration 15 needs tables that no verb reads.
            "ALTER TABLE runs ADD COLUMN stalled_at INTEGER;",
        ];
        for tables in std::iter::once(kernel).chain(columns) {
            let tables = Schema::sqlite().render(tables);
            sqlx::raw_sql(AssertSqlSafe(tables)).execute(&mut conn).await.unwrap();
        }
        let verbs =
            [queue::LOOK, claim::BEFORE, claim::ASKED_BEFORE, claim::CLAIM, event::LOOK, event::INSERT];
        for text in verbs.into_iter().chain([finish::END, retry::FOLLOW, RUNS_BY_ID]) {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
            let rows = sqlx::query(explain).fetch_all(&mut conn).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.text("detail").unwrap()).collect();
            let mut scans = plan.iter().filter(|step| step.starts_with("SCAN"));
            assert!(scans.all(|scan| is_short(scan)), "{text}: {plan:#?}");
        }
    }

    /// Texts for SQLite are not rendered: a label that changes must change here as well.
    #[test]
    fn a_pause_of_the_sync_lane_is_read_from_the_label_that_its_runs_ask_for() {
        let label = format!("'{}'", tidemill_core::sync::SYNC_LABEL);
        assert!(claim::CLAIM.contains(&label) && crate::drain::SQLITE.contains(&label));
    }

    fn is_short(scan: &str) -> bool {
        scan.contains("VIRTUAL TABLE")
            || ["SCAN s", "SCAN a", "SCAN known", "SCAN CONSTANT ROW"].contains(&scan)
    }
}
