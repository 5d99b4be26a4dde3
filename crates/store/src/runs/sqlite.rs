//! The verbs on SQLite: the same steps as the PostgreSQL functions, as statements, with the decisions in Rust.
//!
//! A verb runs in the writer's savepoint. There is no other writer, so it locks no row and sees no change between two
//! statements; an error rolls back the whole verb. Each statement is a call to the thread that owns the connection, so
//! a verb reads once, decides, and writes lists as one JSON text. Triggers write transition events and pass on
//! concurrency keys, because plain SQL statements need that too.
//!
//! The SQL is in `sql/kernel/sqlite/`, beside the functions of PostgreSQL.

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
mod queue_many;
mod retry;

pub(super) use artifact::add_artifact;
pub(super) use cancel::cancel;
pub(super) use claim::claim;
pub(super) use event::append;
pub(super) use fail::fail;
pub(super) use finish::finish;
pub(super) use hold::{heartbeat, start};
pub(super) use queue::queue;
pub(super) use queue_many::queue_many;
pub(super) use retry::retry;

use crate::sqlite::Sqlite;
use crate::tx::EitherDatabase;
use crate::{Error, Refusal, RefusalCode, catalog};
use sqlx::SqliteConnection;
use tidemill_core::RunId;
use tidemill_core::run::Run;

/// Steps that the sweeper uses too. They are methods of [`Sqlite`] because this module is private to the verbs.
impl Sqlite {
    /// Reads runs by their ids, without those that do not exist or cannot be read.
    pub(crate) async fn runs_by_id(
        conn: &mut SqliteConnection,
        runs: &[&RunId],
        action: &'static str,
    ) -> Result<Vec<Run>, Error> {
        let rows = sqlx::query(catalog::sqlite(catalog::FINISH_RUNS_BY_ID))
            .bind(json::ids(runs))
            .fetch_all(conn)
            .await
            .map_err(|source| Error::database(action, source))?;
        Ok(EitherDatabase::Sqlite(rows).readable("runs", "run_id"))
    }
}

/// Reads a run, or refuses an unknown id.
async fn run_by_id(conn: &mut SqliteConnection, run: &RunId, action: &'static str) -> Result<Run, Error> {
    Sqlite::runs_by_id(conn, &[run], action).await?.pop().ok_or_else(|| unknown_run(run))
}

/// Converts an error of the database to ours.
fn failed(action: &'static str) -> impl Fn(sqlx::Error) -> Error {
    move |source| Error::database(action, source)
}

fn unknown_run(run: &RunId) -> Error {
    Error::refused(RefusalCode::UnknownRun, format!("run `{run}` does not exist"))
}

/// Creates a refusal with a hint.
fn refused_with_hint(code: RefusalCode, message: String, hint: impl Into<String>) -> Error {
    Error::Refused(Refusal { code, message, hint: Some(hint.into()) })
}

/// Converts a limit to SQLite's integer type.
fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
    use crate::codec::Columns as _;
    use sqlx::{AssertSqlSafe, Connection as _};

    /// No verb may become slower with the number of runs or events: plans must search rows by an index. They may scan
    /// only short lists: label sets (`s`), parameters, and rows that the statement itself has collected.
    #[tokio::test]
    async fn verbs_scan_neither_runs_nor_events() {
        let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let tables = Schema::sqlite().render(include_str!("../../migrations/sqlite/0001_schema.sql"));
        sqlx::raw_sql(AssertSqlSafe(tables)).execute(&mut conn).await.unwrap();
        let statements = [
            catalog::QUEUE_LOOKUP,
            catalog::CLAIM_PRECHECK,
            catalog::CLAIM_REPEAT,
            catalog::CLAIM_RUNS,
            catalog::APPEND_LOOKUP,
            catalog::APPEND_INSERT,
            catalog::RUN_LEASE_READ,
            catalog::FINISH_LOOKUP,
            catalog::FINISH_RUNS,
            catalog::FINISH_RUNS_BY_ID,
            catalog::RETRY_INSERT,
        ];
        for text in statements.map(catalog::sqlite) {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
            let rows = sqlx::query(explain).fetch_all(&mut conn).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.text("detail").unwrap()).collect();
            let mut scans = plan.iter().filter(|step| step.starts_with("SCAN"));
            assert!(scans.all(|scan| is_short(scan)), "{text}: {plan:#?}");
        }
    }

    fn is_short(scan: &str) -> bool {
        scan.contains("VIRTUAL TABLE")
            || ["SCAN s", "SCAN a", "SCAN known", "SCAN caller", "SCAN CONSTANT ROW"].contains(&scan)
    }
}
