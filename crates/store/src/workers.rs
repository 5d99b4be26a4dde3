//! Worker processes: one row each, kept alive by heartbeats.

use crate::codec::{Columns, SqlTextList, SqlTime, SqlWorkerId};
use crate::sqlite::BoxFuture;
use crate::tx::{Conn, FromColumns, on};
use crate::{Error, Refusal, RefusalCode, Store, Tx, catalog};
use sqlx::AssertSqlSafe;
use tidemill_core::limits::KEY_BYTES_MAX;
use tidemill_core::text::first_control;
use tidemill_core::worker::{HeartbeatResponse, NewWorker, RunLease, Worker};
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

impl FromColumns for RunLease {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            held: row.truth("held")?,
            cancel_requested: row.truth("cancel_requested")?,
            lease_until: row.time_or_null("lease_until")?,
        })
    }
}

/// The refusal of a late heartbeat, with the wording of the PostgreSQL function.
fn found_dead(worker: WorkerId) -> Error {
    Error::Refused(Refusal {
        code: RefusalCode::Stale,
        message: format!("worker {worker} was declared dead, and its runs were given to other workers"),
        hint: Some("Stop its commands, and register again.".to_owned()),
    })
}

/// Checks a registration with the rules and messages of the PostgreSQL function.
fn check_worker(worker: &NewWorker) -> Result<(), Error> {
    let texts = [("p_name", &worker.name), ("p_host", &worker.host), ("p_version", &worker.version)];
    for (name, text) in texts {
        if text.len() > KEY_BYTES_MAX {
            let message = format!("{name} has {} bytes; at most {KEY_BYTES_MAX} are allowed", text.len());
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        if first_control(text).is_some() {
            let message = format!("{name} must not contain control characters");
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
    }
    Ok(tidemill_core::request::check_labels(&worker.labels)?)
}

impl Tx<'_> {
    async fn register_worker(&mut self, worker: &NewWorker, now: Option<Timestamp>) -> Result<(), Error> {
        let moment = self.moment(now);
        let failed = |source| Error::database("register a worker", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = "SELECT {ops}.register_worker($1, $2, $3, $4, $5, $6, $7)";
                sqlx::query(AssertSqlSafe(self.context.schema.render(text)))
                    .bind(SqlWorkerId(worker.worker_id))
                    .bind(&worker.name)
                    .bind(&worker.host)
                    .bind(worker.pid)
                    .bind(SqlTextList(worker.labels.clone()))
                    .bind(&worker.version)
                    .bind(now.map(SqlTime))
                    .persistent(self.context.named)
                    .execute(&mut **conn)
                    .await
                    .map_err(failed)?;
            }
            Conn::Sqlite(conn) => {
                check_worker(worker)?;
                sqlx::query(catalog::sqlite(catalog::WORKER_REGISTER))
                    .bind(SqlWorkerId(worker.worker_id))
                    .bind(&worker.name)
                    .bind(&worker.host)
                    .bind(worker.pid)
                    .bind(SqlTextList(worker.labels.clone()))
                    .bind(&worker.version)
                    .bind(SqlTime(moment))
                    .execute(&mut **conn)
                    .await
                    .map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Records a heartbeat and renews the leases; returns the state of each run, in the order of `runs`.
    async fn heartbeat_worker(
        &mut self,
        worker: WorkerId,
        runs: &[RunId],
        now: Option<Timestamp>,
    ) -> Result<Vec<RunLease>, Error> {
        let moment = self.moment(now);
        let failed = |source| Error::database("record a heartbeat", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = "SELECT b.held, b.cancel_requested, b.lease_until FROM unnest($2::text[]) \
                            WITH ORDINALITY a (id, place) JOIN {ops}.beat_worker($1, $2, $3) b ON b.run_id = a.id \
                            ORDER BY a.place";
                // The function must run even without a run to join it with.
                let text = if runs.is_empty() {
                    "SELECT held, cancel_requested, lease_until FROM {ops}.beat_worker($1, $2, $3)"
                } else {
                    text
                };
                let ids: Vec<_> = runs.iter().map(RunId::as_str).collect();
                let rows = sqlx::query(AssertSqlSafe(self.context.schema.render(text)))
                    .bind(SqlWorkerId(worker))
                    .bind(ids)
                    .bind(now.map(SqlTime))
                    .persistent(self.context.named)
                    .fetch_all(&mut **conn)
                    .await
                    .map_err(failed)?;
                rows.iter().map(RunLease::read).collect::<sqlx::Result<_>>().map_err(failed)
            }
            Conn::Sqlite(conn) => {
                let alive = sqlx::query(catalog::sqlite(catalog::WORKER_BEAT))
                    .bind(SqlWorkerId(worker))
                    .bind(SqlTime(moment))
                    .execute(&mut **conn)
                    .await
                    .map_err(failed)?;
                if alive.rows_affected() == 0 {
                    return Err(found_dead(worker));
                }
                let mut held = Vec::with_capacity(runs.len());
                for run in runs {
                    sqlx::query(catalog::sqlite(catalog::WORKER_BEAT_EXTEND))
                        .bind(run.as_str())
                        .bind(SqlWorkerId(worker))
                        .bind(SqlTime(moment))
                        .execute(&mut **conn)
                        .await
                        .map_err(failed)?;
                    let row = sqlx::query(catalog::sqlite(catalog::WORKER_BEAT_RUN))
                        .bind(run.as_str())
                        .bind(SqlWorkerId(worker))
                        .fetch_optional(&mut **conn)
                        .await
                        .map_err(failed)?;
                    let lost = RunLease { held: false, cancel_requested: false, lease_until: None };
                    held.push(row.map_or(Ok(lost), |row| RunLease::read(&row)).map_err(failed)?);
                }
                Ok(held)
            }
        }
    }

    /// Returns whether a worker process is draining.
    async fn is_draining(&mut self, worker: WorkerId) -> Result<bool, Error> {
        let failed = |source| Error::database("read whether a worker drains", source);
        match &mut self.conn {
            // The worker role may call functions but not read tables.
            Conn::Postgres(conn) => {
                sqlx::query_scalar(AssertSqlSafe(self.context.schema.render("SELECT {ops}.is_draining($1)")))
                    .bind(SqlWorkerId(worker))
                    .persistent(self.context.named)
                    .fetch_one(&mut **conn)
                    .await
                    .map_err(failed)
            }
            Conn::Sqlite(conn) => sqlx::query_scalar(catalog::sqlite(catalog::WORKER_IS_DRAINING))
                .bind(SqlWorkerId(worker))
                .fetch_one(&mut **conn)
                .await
                .map_err(failed),
        }
    }

    /// Sets whether a worker process gets new runs. Refused if the process does not exist or has ended.
    async fn drain_worker(&mut self, worker: WorkerId, draining: bool) -> Result<Worker, Error> {
        let action = "drain a worker";
        let updated =
            on!(self, catalog::WORKER_DRAIN, [SqlWorkerId(worker), draining], execute, "drain a worker")?;
        if updated.count() == 0 {
            self.skip_audit();
        }
        let known: Option<Worker> =
            on!(self, catalog::WORKER_GET, [SqlWorkerId(worker)], fetch_optional, "drain a worker")?
                .record(action)?;
        known.filter(|known| known.ended_at.is_none()).ok_or_else(|| {
            let message = format!("worker `{worker}` does not exist or has ended");
            Error::refused(RefusalCode::UnknownWorker, message)
        })
    }

    async fn declare_waiting(&mut self, worker: WorkerId, waiting: bool) -> Result<(), Error> {
        // SQLite has no listeners: workers of this process are signalled, others poll.
        if let Conn::Postgres(conn) = &mut self.conn {
            sqlx::query(AssertSqlSafe(self.context.schema.render("SELECT {ops}.declare_waiting($1, $2)")))
                .bind(SqlWorkerId(worker))
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
                    .bind(SqlWorkerId(worker))
                    .bind(now.map(SqlTime))
                    .persistent(self.context.named)
                    .execute(&mut **conn)
                    .await
                    .map_err(failed)?;
            }
            Conn::Sqlite(conn) => {
                sqlx::query(catalog::sqlite(catalog::WORKER_RETIRE))
                    .bind(SqlWorkerId(worker))
                    .bind(SqlTime(moment))
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

    /// Records a heartbeat of a worker process and renews the leases of its runs. Returns the state of each run, and
    /// whether the process drains.
    ///
    /// Refused as stale if the process was declared dead. It must then stop its runs and register again.
    pub async fn heartbeat_worker(
        &self,
        worker: WorkerId,
        runs: Vec<RunId>,
        now: Option<Timestamp>,
    ) -> Result<HeartbeatResponse, Error> {
        self.run_heartbeat(move |mut tx| -> BoxFuture<'_, _> {
            Box::pin(async move {
                let held = tx.heartbeat_worker(worker, &runs, now).await?;
                Ok(HeartbeatResponse { held, draining: tx.is_draining(worker).await? })
            })
        })
        .await
    }

    /// Returns whether a worker process is draining.
    pub async fn is_draining(&self, worker: WorkerId) -> Result<bool, Error> {
        self.read_one(move |mut tx| Box::pin(async move { tx.is_draining(worker).await })).await
    }

    /// Sets whether a worker process gets new runs; returns the process. Refused if the process does not exist or has
    /// ended.
    pub async fn drain_worker(&self, worker: WorkerId, draining: bool) -> Result<Worker, Error> {
        self.write(move |mut tx| Box::pin(async move { tx.drain_worker(worker, draining).await })).await
    }

    /// Declares that a worker waits for a wake-up, or no longer does.
    pub(crate) async fn declare_waiting(&self, worker: WorkerId, waiting: bool) -> Result<(), Error> {
        self.step(move |mut tx| Box::pin(async move { tx.declare_waiting(worker, waiting).await })).await
    }

    /// Records that a worker process shut down.
    pub async fn retire_worker(&self, worker: WorkerId, now: Option<Timestamp>) -> Result<(), Error> {
        self.step(move |mut tx| Box::pin(async move { tx.retire_worker(worker, now).await })).await
    }

    /// Lists worker processes, live ones first.
    pub async fn workers(&self) -> Result<Vec<Worker>, Error> {
        self.workers_of(None).await
    }

    /// Lists worker processes that hold a run of this project, or all, live ones first.
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
