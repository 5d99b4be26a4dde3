//! What holds a queued run back: its time, or the concurrency key that another run has.
//!
//! Only the head of a key has an open gate; the others stand in line behind it, out of the way of claims. An
//! end passes the key on in the trigger `run_releases_key`. A key never lacks a head: there is no locked run
//! to step over, which is why PostgreSQL has such keys and a sweep for them.

use super::{count, failed, json};
use crate::codec::{Columns as _, SqlTime};
use crate::sqlite::Sqlite;
use crate::{Error, catalog};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::{Gate, Run};
use tidemill_core::{RunId, Timestamp};

/// A run that is about to wait.
pub(super) struct Arrival<'a> {
    pub(super) run: &'a RunId,
    pub(super) project: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) priority: i32,
    /// When it was asked for: its place in the line of its key.
    pub(super) ready_at: Timestamp,
    pub(super) available_at: Option<Timestamp>,
}

impl Arrival<'_> {
    /// Enters the key, if there is one and the time has come, and says which gate the run gets.
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

    /// Takes the key or a place in its line, whatever the time is.
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
        // A head that nobody has claimed yet gives way to a run of higher priority, and to one of the same priority
        // that was asked for earlier: the successor of a lost run takes its old place.
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
    /// Opens the gate of a run whose time has come, or puts it in line for its key.
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

/// When a run was asked for, as the line of its key counts.
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

/// Opens the gates of runs whose time has come, a batch of them.
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
