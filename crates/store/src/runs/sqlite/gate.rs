//! Gates of queued runs: the start time, or a concurrency key that another run holds.
//!
//! Only the head of a key has an open gate; the others wait in line, and claims do not see them. The trigger
//! `run_releases_key` passes the key on when a run ends. A key always has a head here. On PostgreSQL a locked run can
//! leave a key without a head, and the sweep repairs it.

use super::{count, failed, json};
use crate::codec::{Columns as _, SqlTime};
use crate::sqlite::Sqlite;
use crate::{Error, catalog};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::{Gate, Run};
use tidemill_core::{RunId, Timestamp};

/// A run that enters the queue.
pub(super) struct Arrival<'a> {
    pub(super) run: &'a RunId,
    pub(super) project: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) priority: i32,
    /// Time of the request, which is its position in the line of its key.
    pub(super) ready_at: Timestamp,
    pub(super) available_at: Option<Timestamp>,
}

impl Arrival<'_> {
    /// Enters the line of the key, if there is one and the run is due, and returns the gate of the run.
    pub(super) async fn enter(
        &self,
        conn: &mut SqliteConnection,
        now: Timestamp,
        action: &'static str,
    ) -> Result<Gate, Error> {
        if self.available_at.is_some_and(|at| at > now) {
            return Ok(Gate::Time);
        }
        self.enter_key(conn, action).await
    }

    /// Takes the key or a position in its line, regardless of the start time.
    pub(super) async fn enter_key(
        &self,
        conn: &mut SqliteConnection,
        action: &'static str,
    ) -> Result<Gate, Error> {
        let Some(key) = self.key else { return Ok(Gate::Open) };
        let head: String = sqlx::query_scalar(catalog::sqlite(catalog::KEY_ENTER))
            .bind(self.project)
            .bind(key)
            .bind(self.run.as_str())
            .fetch_one(&mut *conn)
            .await
            .map_err(failed(action))?;
        if head == self.run.as_str() {
            return Ok(Gate::Open);
        }
        // An unclaimed head is replaced by a run of higher priority, and by an earlier request of the same priority:
        // the successor of a lost run keeps its position.
        let displaced = sqlx::query(catalog::sqlite(catalog::KEY_DISPLACE_HEAD))
            .bind(head)
            .bind(self.priority)
            .bind(SqlTime(self.ready_at))
            .execute(&mut *conn)
            .await
            .map_err(failed(action))?;
        if displaced.rows_affected() == 0 {
            return Ok(Gate::Key);
        }
        sqlx::query(catalog::sqlite(catalog::KEY_SET_HEAD))
            .bind(self.project)
            .bind(key)
            .bind(self.run.as_str())
            .execute(conn)
            .await
            .map_err(failed(action))?;
        Ok(Gate::Open)
    }
}

impl Sqlite {
    /// Opens the gate of a due run, or adds it to the line of its key.
    pub(crate) async fn open_gate(
        conn: &mut SqliteConnection,
        run: &Run,
        now: Timestamp,
        action: &'static str,
    ) -> Result<(), Error> {
        let arrival = Arrival {
            run: &run.run_id,
            project: &run.project_id,
            key: run.concurrency_key.as_deref(),
            priority: run.priority,
            ready_at: ready_at(conn, &run.run_id, action).await?,
            available_at: None,
        };
        let gate = arrival.enter(conn, now, action).await?;
        set_gate(conn, &[&run.run_id], gate, now, action).await
    }
}

/// Returns the time of a run's request, which orders the line of its key.
pub(super) async fn ready_at(
    conn: &mut SqliteConnection,
    run: &RunId,
    action: &'static str,
) -> Result<Timestamp, Error> {
    let at: SqlTime = sqlx::query_scalar(catalog::sqlite(catalog::GATE_READY_AT))
        .bind(run.as_str())
        .fetch_one(conn)
        .await
        .map_err(failed(action))?;
    Ok(at.0)
}

/// Opens the gates of a batch of due runs.
pub(super) async fn open_due(
    conn: &mut SqliteConnection,
    now: Timestamp,
    action: &'static str,
) -> Result<(), Error> {
    let rows = sqlx::query(catalog::sqlite(catalog::GATE_DUE))
        .bind(SqlTime(now))
        .bind(count(BATCH_MAX))
        .fetch_all(&mut *conn)
        .await
        .map_err(failed(action))?;
    let read = |row: &SqliteRow| -> sqlx::Result<(RunId, bool)> {
        Ok((row.run_id("run_id")?, row.truth("has_key")?))
    };
    let due: Vec<(RunId, bool)> =
        rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(failed(action))?;
    let of = |keyed: bool| due.iter().filter(move |run| run.1 == keyed).map(|run| &run.0).collect::<Vec<_>>();
    set_gate(conn, &of(false), Gate::Open, now, action).await?;
    let keyed = of(true);
    if !keyed.is_empty() {
        for run in Sqlite::runs_by_id(conn, &keyed, action).await? {
            Sqlite::open_gate(conn, &run, now, action).await?;
        }
    }
    Ok(())
}

async fn set_gate(
    conn: &mut SqliteConnection,
    runs: &[&RunId],
    gate: Gate,
    now: Timestamp,
    action: &'static str,
) -> Result<(), Error> {
    sqlx::query(catalog::sqlite(catalog::GATE_SET))
        .bind(json::ids(runs))
        .bind(gate.as_str())
        .bind(SqlTime(now))
        .execute(conn)
        .await
        .map_err(failed(action))?;
    Ok(())
}
