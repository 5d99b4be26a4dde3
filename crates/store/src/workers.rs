//! Worker processes: one row each, which their dispatch loop keeps alive.

use crate::codec::{At, Boot, Columns, Words};
use crate::sqlite::Boxed;
use crate::tx::{Conn, FromColumns, on};
use crate::{Error, Refusal, RefusalCode, Store, Tx, catalog};
use sqlx::AssertSqlSafe;
use tidemill_core::worker::{Beaten, Held, NewWorker, Worker};
use tidemill_core::{RunId, Timestamp, WorkerId};

impl FromColumns for Worker {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            worker_id: row.worker_or_null("worker_id")?.ok_or(sqlx::Error::RowNotFound)?,
            name: row.text("name")?,
            host: row.text("host")?,
            pid: row.long("pid")?,
            labels: row.words("labels")?,
            version: row.text("version")?,
            started_at: row.time("started_at")?,
            beat_at: row.time("beat_at")?,
            ended_at: row.time_or_null("ended_at")?,
            draining: row.truth("draining")?,
        })
    }
}

impl FromColumns for Held {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            held: row.truth("held")?,
            cancel_requested: row.truth("cancel_requested")?,
            lease_until: row.time_or_null("lease_until")?,
        })
    }
}

/// The refusal of a beat that comes too late, in the words of the PostgreSQL function.
fn found_dead(worker: WorkerId) -> Error {
    Error::Refused(Refusal {
        code: RefusalCode::Stale,
        message: format!("worker {worker} was found dead, and its runs were given to others"),
        hint: Some("Stop what it runs, and register anew.".to_owned()),
    })
}

impl Tx<'_> {
    async fn register_worker(&mut self, worker: &NewWorker, now: Option<Timestamp>) -> Result<(), Error> {
        let moment = self.moment(now);
        let failed = |source| Error::database("register a worker", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = "SELECT {ops}.register_worker($1, $2, $3, $4, $5, $6, $7)";
                sqlx::query(AssertSqlSafe(self.context.schema.render(text)))
                    .bind(Boot(worker.worker_id))
                    .bind(&worker.name)
                    .bind(&worker.host)
                    .bind(worker.pid)
                    .bind(Words(worker.labels.clone()))
                    .bind(&worker.version)
                    .bind(now.map(At))
                    .persistent(self.context.named)
                    .execute(&mut **conn)
                    .await
                    .map_err(failed)?;
            }
            Conn::Sqlite(conn) => {
                sqlx::query(
                    "INSERT INTO workers (worker_id, name, host, pid, labels, version, started_at, beat_at) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $7) ON CONFLICT (worker_id) DO NOTHING",
                )
                .bind(Boot(worker.worker_id))
                .bind(&worker.name)
                .bind(&worker.host)
                .bind(worker.pid)
                .bind(Words(worker.labels.clone()))
                .bind(&worker.version)
                .bind(At(moment))
                .execute(&mut **conn)
                .await
                .map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Says that a worker lives and renews its leases; what it holds, in the order of `runs`.
    async fn beat_worker(
        &mut self,
        worker: WorkerId,
        runs: &[RunId],
        now: Option<Timestamp>,
    ) -> Result<Vec<Held>, Error> {
        let moment = self.moment(now);
        let failed = |source| Error::database("say that a worker lives", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = "SELECT b.held, b.cancel_requested, b.lease_until FROM unnest($2::text[]) \
                            WITH ORDINALITY a (id, place) JOIN {ops}.beat_worker($1, $2, $3) b ON b.run_id = a.id \
                            ORDER BY a.place";
                // The function must run even when there is no run to join it with.
                let text = if runs.is_empty() {
                    "SELECT held, cancel_requested, lease_until FROM {ops}.beat_worker($1, $2, $3)"
                } else {
                    text
                };
                let ids: Vec<_> = runs.iter().map(RunId::as_str).collect();
                let rows = sqlx::query(AssertSqlSafe(self.context.schema.render(text)))
                    .bind(Boot(worker))
                    .bind(ids)
                    .bind(now.map(At))
                    .persistent(self.context.named)
                    .fetch_all(&mut **conn)
                    .await
                    .map_err(failed)?;
                rows.iter().map(Held::read).collect::<sqlx::Result<_>>().map_err(failed)
            }
            Conn::Sqlite(conn) => {
                let alive = sqlx::query(
                    "UPDATE workers SET beat_at = max(beat_at, $2) WHERE worker_id = $1 AND ended_at IS NULL",
                )
                .bind(Boot(worker))
                .bind(At(moment))
                .execute(&mut **conn)
                .await
                .map_err(failed)?;
                if alive.rows_affected() == 0 {
                    return Err(found_dead(worker));
                }
                let mut held = Vec::with_capacity(runs.len());
                for run in runs {
                    sqlx::query(
                        "UPDATE runs SET lease_until = $3 + lease_secs * 1000000, updated_at = $3 \
                         WHERE run_id = $1 AND worker_id = $2 AND status IN ('claimed', 'running') \
                         AND lease_until < $3 + lease_secs * 800000",
                    )
                    .bind(run.as_str())
                    .bind(Boot(worker))
                    .bind(At(moment))
                    .execute(&mut **conn)
                    .await
                    .map_err(failed)?;
                    let row = sqlx::query(
                        "SELECT status IN ('claimed', 'running') AND worker_id IS $2 AS held, \
                         cancel_requested_at IS NOT NULL AS cancel_requested, lease_until \
                         FROM runs WHERE run_id = $1",
                    )
                    .bind(run.as_str())
                    .bind(Boot(worker))
                    .fetch_optional(&mut **conn)
                    .await
                    .map_err(failed)?;
                    let gone = Held { held: false, cancel_requested: false, lease_until: None };
                    held.push(row.map_or(Ok(gone), |row| Held::read(&row)).map_err(failed)?);
                }
                Ok(held)
            }
        }
    }

    /// Whether a worker process was asked to drain.
    async fn is_draining(&mut self, worker: WorkerId) -> Result<bool, Error> {
        let failed = |source| Error::database("read whether a worker drains", source);
        match &mut self.conn {
            // Whoever works here may call functions, and read no table.
            Conn::Postgres(conn) => {
                sqlx::query_scalar(AssertSqlSafe(self.context.schema.render("SELECT {ops}.is_draining($1)")))
                    .bind(Boot(worker))
                    .persistent(self.context.named)
                    .fetch_one(&mut **conn)
                    .await
                    .map_err(failed)
            }
            Conn::Sqlite(conn) => sqlx::query_scalar(
                "SELECT EXISTS (SELECT 1 FROM workers WHERE worker_id = $1 AND ended_at IS NULL AND draining)",
            )
            .bind(Boot(worker))
            .fetch_one(&mut **conn)
            .await
            .map_err(failed),
        }
    }

    /// Lets a worker process get nothing new, or get it again. None: there is no such process, or it has ended.
    async fn drain_worker(&mut self, worker: WorkerId, draining: bool) -> Result<Worker, Error> {
        let action = "drain a worker";
        let noted = on!(self, catalog::WORKER_DRAIN, [Boot(worker), draining], execute, "drain a worker")?;
        let known = if noted.count() == 0 {
            None
        } else {
            on!(self, catalog::WORKER_GET, [Boot(worker)], fetch_optional, "drain a worker")?
                .record(action)?
        };
        known.ok_or_else(|| {
            let message = format!("worker `{worker}` does not exist, or has ended");
            Error::refused(RefusalCode::UnknownWorker, message)
        })
    }

    async fn declare_waiting(&mut self, worker: WorkerId, waiting: bool) -> Result<(), Error> {
        // On SQLite nobody listens: workers of this process are signalled, others look.
        if let Conn::Postgres(conn) = &mut self.conn {
            sqlx::query(AssertSqlSafe(self.context.schema.render("SELECT {ops}.declare_waiting($1, $2)")))
                .bind(Boot(worker))
                .bind(waiting)
                .persistent(self.context.named)
                .execute(&mut **conn)
                .await
                .map_err(|source| Error::database("declare that a worker waits", source))?;
        }
        Ok(())
    }

    async fn retire_worker(&mut self, worker: WorkerId, now: Option<Timestamp>) -> Result<(), Error> {
        let moment = self.moment(now);
        let failed = |source| Error::database("retire a worker", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                sqlx::query(AssertSqlSafe(self.context.schema.render("SELECT {ops}.retire_worker($1, $2)")))
                    .bind(Boot(worker))
                    .bind(now.map(At))
                    .persistent(self.context.named)
                    .execute(&mut **conn)
                    .await
                    .map_err(failed)?;
            }
            Conn::Sqlite(conn) => {
                sqlx::query(
                    "UPDATE workers SET ended_at = $2, end_cause = 'stopped' \
                     WHERE worker_id = $1 AND ended_at IS NULL",
                )
                .bind(Boot(worker))
                .bind(At(moment))
                .execute(&mut **conn)
                .await
                .map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Store {
    /// Registers a worker process.
    pub async fn register_worker(&self, worker: NewWorker, now: Option<Timestamp>) -> Result<(), Error> {
        self.step(move |mut tx| Box::pin(async move { tx.register_worker(&worker, now).await })).await
    }

    /// Says that a worker process lives, renews the leases of its runs, and tells what became of them and whether it
    /// drains.
    ///
    /// Refused as stale when the process was found dead: it must stop what it runs, and register anew.
    pub async fn beat_worker(
        &self,
        worker: WorkerId,
        runs: Vec<RunId>,
        now: Option<Timestamp>,
    ) -> Result<Beaten, Error> {
        self.beat(move |mut tx| -> Boxed<'_, _> {
            Box::pin(async move {
                let held = tx.beat_worker(worker, &runs, now).await?;
                Ok(Beaten { held, draining: tx.is_draining(worker).await? })
            })
        })
        .await
    }

    /// Whether a worker process was asked to drain.
    pub async fn is_draining(&self, worker: WorkerId) -> Result<bool, Error> {
        self.glance(move |mut tx| Box::pin(async move { tx.is_draining(worker).await })).await
    }

    /// Lets a worker process get nothing new, or get it again; the process. One that has ended has nothing to drain.
    pub async fn drain_worker(&self, worker: WorkerId, draining: bool) -> Result<Worker, Error> {
        self.write(move |mut tx| Box::pin(async move { tx.drain_worker(worker, draining).await })).await
    }

    /// Declares that a worker waits for a wake-up, or no longer does.
    pub(crate) async fn declare_waiting(&self, worker: WorkerId, waiting: bool) -> Result<(), Error> {
        self.step(move |mut tx| Box::pin(async move { tx.declare_waiting(worker, waiting).await })).await
    }

    /// A worker process says goodbye.
    pub async fn retire_worker(&self, worker: WorkerId, now: Option<Timestamp>) -> Result<(), Error> {
        self.step(move |mut tx| Box::pin(async move { tx.retire_worker(worker, now).await })).await
    }

    /// Worker processes, the living first.
    pub async fn workers(&self) -> Result<Vec<Worker>, Error> {
        self.workers_of(None).await
    }

    /// Worker processes that hold a run of this project, or all of them; the living first.
    pub async fn workers_of(&self, project: Option<String>) -> Result<Vec<Worker>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::WORKER_LIST, [project.as_deref()], fetch_all, "list workers")?
                    .readable("workers", "worker_id"))
            })
        })
        .await
    }
}
