//! The SQL functions as a psql user calls them, with named parameters, as a role that may do nothing else.
//!
//! A call with one run uses the single-run function, because people call those; a call with several runs uses the batch
//! function.

use std::pin::Pin;

use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row as _};
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{ChangeOutcome, Claim, FailOutcome, FailRun, FinalStatus, QueueRun};
use tidemill_core::worker::{HeartbeatResponse, NewWorker, RunLease};
use tidemill_core::{Json, RunId, Timestamp, WorkerId};
use tidemill_store::{
    CancelOutcome, ClaimRuns, Error, FinishRun, Holder, QueueOutcome, RetryOutcome, Store, SweptRun,
};

use super::{Interface, InterfaceFuture};

/// A worker that uses psql.
#[derive(Debug)]
pub(super) struct SqlInterface {
    /// Connections of a login role that is only a member of the worker role and of the clock role.
    pub(super) worker: PgPool,
    /// Store for operations that a worker may not do.
    pub(super) owner: Store,
}

type Call = Query<'static, Postgres, PgArguments>;

fn failed(source: sqlx::Error) -> Error {
    Error::database("answer a psql worker", source)
}

impl SqlInterface {
    async fn row(&self, call: Call) -> Result<PgRow, Error> {
        call.fetch_one(&self.worker).await.map_err(failed)
    }

    async fn rows(&self, call: Call) -> Result<Vec<PgRow>, Error> {
        call.fetch_all(&self.worker).await.map_err(failed)
    }

    /// `finish_run` returns whether the report counts. Repeating the report tells a duplicate from a run that had ended
    /// before.
    async fn finish_one(
        &self,
        end: FinishRun,
        worker: Option<String>,
        now: Timestamp,
    ) -> Result<ChangeOutcome, Error> {
        let before = self.owner.run(end.run_id.clone()).await?;
        let call = sqlx::query(
            "SELECT ops.finish_run(p_run_id := $1, p_status := $2, p_metadata := $3, p_worker_id := $4, \
             p_epoch := $5, p_now := $6)",
        )
        .bind(end.run_id.to_string())
        .bind(FinalStatus::as_str(end.status))
        .bind(end.metadata)
        .bind(worker)
        .bind(end.epoch)
        .bind(now);
        let counts: bool = self.row(call).await?.try_get(0).map_err(failed)?;
        let had_ended = before.is_some_and(|run| run.status.is_terminal());
        Ok(match (counts, had_ended) {
            (false, _) => ChangeOutcome::Stale,
            (true, true) => ChangeOutcome::Duplicate,
            (true, false) => ChangeOutcome::Applied,
        })
    }

    async fn append_one(
        &self,
        run: RunId,
        event: NewEvent,
        holder: Holder,
        now: Timestamp,
    ) -> Result<Option<String>, Error> {
        let call = sqlx::query(
            "SELECT ops.append_event(p_run_id := $1, p_level := $2, p_message := $3, p_payload := $4, p_key := $5, \
             p_worker_id := $6, p_epoch := $7, p_now := $8)",
        )
        .bind(run.to_string())
        .bind(event.level.as_str())
        .bind(event.message)
        .bind(event.payload)
        .bind(event.key)
        .bind(holder.worker)
        .bind(holder.epoch)
        .bind(now);
        self.row(call).await?.try_get(0).map_err(failed)
    }
}

/// Reads a claim as JSON, like the seed's worker script.
fn claim(row: &PgRow) -> sqlx::Result<Claim> {
    let json: Json = row.try_get(0)?;
    serde_json::from_value(json).map_err(|source| sqlx::Error::Decode(Box::new(source)))
}

fn text<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    row: &PgRow,
    column: &str,
) -> sqlx::Result<T> {
    row.try_get::<String, _>(column)?.parse().map_err(|source| sqlx::Error::Decode(Box::new(source)))
}

fn queued(row: &PgRow) -> sqlx::Result<QueueOutcome> {
    Ok(QueueOutcome {
        run_id: text(row, "run_id")?,
        status: text(row, "status")?,
        queued_at: row.try_get("queued_at")?,
        created: row.try_get("created")?,
    })
}

fn held(row: &PgRow) -> sqlx::Result<RunLease> {
    Ok(RunLease {
        held: row.try_get("held")?,
        cancel_requested: row.try_get("cancel_requested")?,
        lease_until: row.try_get("lease_until")?,
    })
}

impl Interface for SqlInterface {
    fn queue(&self, request: QueueRun, run: RunId, now: Timestamp) -> InterfaceFuture<'_, QueueOutcome> {
        let call = sqlx::query(
            "SELECT * FROM ops.queue_run(p_project_id := $1, p_env := $2, p_git_sha := $3, p_git_ref := $4, \
             p_metadata := $5, p_idempotency_key := $6, p_priority := $7, p_available_at := $8, \
             p_expires_at := $9, p_max_attempts := $10, p_max_losses := $11, p_backoff_secs := $12, \
             p_timeout_secs := $13, p_concurrency_key := $14, p_labels := $15, p_run_id := $16, p_now := $17, \
             p_kind := $18)",
        )
        .bind(request.project)
        .bind(request.env)
        .bind(request.git_sha)
        .bind(request.git_ref)
        .bind(request.metadata)
        .bind(request.idempotency_key)
        .bind(request.priority)
        .bind(request.available_at)
        .bind(request.expires_at)
        .bind(request.max_attempts)
        .bind(request.max_losses)
        .bind(request.backoff_secs)
        .bind(request.timeout_secs)
        .bind(request.concurrency_key)
        .bind(request.labels)
        .bind(run.to_string())
        .bind(now)
        .bind(request.kind);
        Box::pin(async move { queued(&self.row(call).await?).map_err(failed) })
    }

    fn queue_many(
        &self,
        requests: Vec<(QueueRun, RunId)>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<QueueOutcome>> {
        // All fields, also those with their default.
        let element = |(request, run): (QueueRun, RunId)| {
            let mut element = serde_json::to_value(request).unwrap_or_default();
            element["run_id"] = run.as_str().into();
            element
        };
        let elements: Vec<Json> = requests.into_iter().map(element).collect();
        let call = sqlx::query("SELECT * FROM ops.queue_runs(p_runs := $1, p_now := $2)")
            .bind(Json::Array(elements))
            .bind(now);
        Box::pin(async move {
            let rows = self.rows(call).await?;
            rows.iter().map(queued).collect::<sqlx::Result<_>>().map_err(failed)
        })
    }

    fn claim(&self, ask: ClaimRuns, now: Timestamp) -> InterfaceFuture<'_, Vec<Claim>> {
        let call = sqlx::query(
            "SELECT to_jsonb(c) FROM ops.claim_next_run(p_worker_id := $1, p_limit := $2, p_labels := $3, \
             p_projects := $4, p_worker := $5, p_request_id := $6, p_lease_secs := $7, p_now := $8) c",
        )
        .bind(ask.worker)
        .bind(i32::try_from(ask.limit).unwrap_or(i32::MAX))
        .bind(ask.labels)
        .bind(ask.projects)
        .bind(ask.worker_id.map(|worker| worker.0))
        .bind(ask.request_id)
        .bind(ask.lease_secs.map(|secs| i32::try_from(secs).unwrap_or(i32::MAX)))
        .bind(now);
        Box::pin(async move {
            let rows = self.rows(call).await?;
            rows.iter().map(claim).collect::<sqlx::Result<_>>().map_err(failed)
        })
    }

    fn start(&self, run: RunId, holder: Holder, now: Timestamp) -> InterfaceFuture<'_, ChangeOutcome> {
        let call = sqlx::query(
            "SELECT ops.start_run(p_run_id := $1, p_worker_id := $2, p_epoch := $3, p_now := $4)",
        )
        .bind(run.to_string())
        .bind(holder.worker)
        .bind(holder.epoch)
        .bind(now);
        Box::pin(async move {
            let started: bool = self.row(call).await?.try_get(0).map_err(failed)?;
            Ok(if started { ChangeOutcome::Applied } else { ChangeOutcome::Stale })
        })
    }

    fn append(
        &self,
        run: RunId,
        mut events: Vec<NewEvent>,
        holder: Holder,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<Option<String>>> {
        Box::pin(async move {
            if events.len() == 1 {
                return Ok(vec![self.append_one(run, events.remove(0), holder, now).await?]);
            }
            let call = sqlx::query(
                "SELECT event_id FROM ops.append_events(p_run_id := $1, p_levels := $2, p_messages := $3, \
                 p_payloads := $4, p_keys := $5, p_worker_id := $6, p_epoch := $7, p_now := $8)",
            )
            .bind(run.to_string())
            .bind(events.iter().map(|event| event.level.as_str()).collect::<Vec<_>>())
            .bind(events.iter().map(|event| event.message.clone()).collect::<Vec<_>>())
            .bind(events.iter().map(|event| event.payload.clone()).collect::<Vec<_>>())
            .bind(events.iter().map(|event| event.key.clone()).collect::<Vec<_>>())
            .bind(holder.worker)
            .bind(holder.epoch)
            .bind(now);
            let rows = self.rows(call).await?;
            rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().map_err(failed)
        })
    }

    fn heartbeat(&self, run: RunId, holder: Holder, now: Timestamp) -> InterfaceFuture<'_, RunLease> {
        let call = sqlx::query(
            "SELECT * FROM ops.heartbeat(p_run_id := $1, p_worker_id := $2, p_epoch := $3, p_now := $4)",
        )
        .bind(run.to_string())
        .bind(holder.worker)
        .bind(holder.epoch)
        .bind(now);
        Box::pin(async move { held(&self.row(call).await?).map_err(failed) })
    }

    fn finish(
        &self,
        mut ends: Vec<FinishRun>,
        worker: Option<String>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<ChangeOutcome>> {
        Box::pin(async move {
            if ends.len() == 1 {
                return Ok(vec![self.finish_one(ends.remove(0), worker, now).await?]);
            }
            let call = sqlx::query(
                "SELECT outcome FROM ops.finish_runs(p_run_ids := $1, p_statuses := $2, p_metadata := $3, \
                 p_worker_id := $4, p_epochs := $5, p_now := $6)",
            )
            .bind(ends.iter().map(|end| end.run_id.to_string()).collect::<Vec<_>>())
            .bind(ends.iter().map(|end| FinalStatus::as_str(end.status)).collect::<Vec<_>>())
            .bind(ends.iter().map(|end| end.metadata.clone()).collect::<Vec<_>>())
            .bind(worker)
            .bind(ends.iter().map(|end| end.epoch).collect::<Vec<_>>())
            .bind(now);
            let rows = self.rows(call).await?;
            let outcome = |row: &PgRow| -> sqlx::Result<ChangeOutcome> {
                match row.try_get::<String, _>(0)?.as_str() {
                    "applied" => Ok(ChangeOutcome::Applied),
                    "duplicate" => Ok(ChangeOutcome::Duplicate),
                    "stale" => Ok(ChangeOutcome::Stale),
                    other => Err(sqlx::Error::Decode(format!("`{other}` is no outcome").into())),
                }
            };
            rows.iter().map(outcome).collect::<sqlx::Result<_>>().map_err(failed)
        })
    }

    fn cancel(
        &self,
        run: RunId,
        by: String,
        reason: Option<String>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, CancelOutcome> {
        let call =
            sqlx::query("SELECT ops.cancel_run(p_run_id := $1, p_by := $2, p_reason := $3, p_now := $4)")
                .bind(run.to_string())
                .bind(by)
                .bind(reason)
                .bind(now);
        Box::pin(async move {
            let answer: String = self.row(call).await?.try_get(0).map_err(failed)?;
            match answer.as_str() {
                "cancelled" => Ok(CancelOutcome::Cancelled),
                "requested" => Ok(CancelOutcome::Requested),
                "ended" => Ok(CancelOutcome::Ended),
                other => Err(failed(sqlx::Error::Decode(format!("`{other}` is no answer").into()))),
            }
        })
    }

    fn retry(&self, run: RunId, by: String, now: Timestamp) -> InterfaceFuture<'_, RetryOutcome> {
        let call = sqlx::query("SELECT * FROM ops.retry_run(p_run_id := $1, p_by := $2, p_now := $3)")
            .bind(run.to_string())
            .bind(by)
            .bind(now);
        Box::pin(async move {
            let row = self.row(call).await?;
            let read = || -> sqlx::Result<RetryOutcome> {
                Ok(RetryOutcome { run_id: text(&row, "run_id")?, created: row.try_get("created")? })
            };
            read().map_err(failed)
        })
    }

    fn fail(&self, ask: FailRun, now: Timestamp) -> InterfaceFuture<'_, FailOutcome> {
        let call = sqlx::query(
            "SELECT * FROM ops.fail_run(p_run_id := $1, p_by := $2, p_reason := $3, p_retry := $4, p_now := $5)",
        )
        .bind(ask.run_id.to_string())
        .bind(ask.by)
        .bind(ask.reason)
        .bind(ask.retry)
        .bind(now);
        Box::pin(async move {
            let row = self.row(call).await?;
            let read = || -> sqlx::Result<FailOutcome> {
                let successor: Option<String> = row.try_get("successor")?;
                let successor = successor.map(|run| run.parse()).transpose();
                let successor = successor.map_err(|bad| sqlx::Error::Decode(Box::new(bad)))?;
                let outcome = match row.try_get::<String, _>("outcome")?.as_str() {
                    "applied" => ChangeOutcome::Applied,
                    "duplicate" => ChangeOutcome::Duplicate,
                    other => return Err(sqlx::Error::Decode(format!("`{other}` is no outcome").into())),
                };
                Ok(FailOutcome { outcome, successor })
            };
            read().map_err(failed)
        })
    }

    fn add_artifact(&self, run: RunId, artifact: NewArtifact, now: Timestamp) -> InterfaceFuture<'_, String> {
        let call = sqlx::query(
            "SELECT ops.add_artifact(p_run_id := $1, p_type := $2, p_url := $3, p_digest := $4, \
             p_size_bytes := $5, p_metadata := $6, p_now := $7)",
        )
        .bind(run.to_string())
        .bind(artifact.artifact_type)
        .bind(artifact.url)
        .bind(artifact.digest)
        .bind(artifact.size_bytes)
        .bind(artifact.metadata)
        .bind(now);
        Box::pin(async move { self.row(call).await?.try_get(0).map_err(failed) })
    }

    fn register(&self, worker: NewWorker, now: Timestamp) -> InterfaceFuture<'_, ()> {
        let call = sqlx::query(
            "SELECT ops.register_worker(p_worker := $1, p_name := $2, p_host := $3, p_pid := $4, p_labels := $5, \
             p_version := $6, p_now := $7)",
        )
        .bind(worker.worker_id.0)
        .bind(worker.name)
        .bind(worker.host)
        .bind(worker.pid)
        .bind(worker.labels)
        .bind(worker.version)
        .bind(now);
        Box::pin(async move { self.row(call).await.map(|_| ()) })
    }

    fn worker_heartbeat(
        &self,
        worker: WorkerId,
        runs: Vec<RunId>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, HeartbeatResponse> {
        let ids: Vec<String> = runs.iter().map(ToString::to_string).collect();
        let call = sqlx::query("SELECT * FROM ops.beat_worker(p_worker := $1, p_run_ids := $2, p_now := $3)")
            .bind(worker.0)
            .bind(ids.clone())
            .bind(now);
        Box::pin(async move {
            let rows = self.rows(call).await?;
            // The function promises no order, so rows are matched by run id.
            let read = |id: &String| -> sqlx::Result<RunLease> {
                for row in &rows {
                    if row.try_get::<String, _>("run_id")? == *id {
                        return held(row);
                    }
                }
                Err(sqlx::Error::RowNotFound)
            };
            let held = ids.iter().map(read).collect::<sqlx::Result<_>>().map_err(failed)?;
            let draining = sqlx::query("SELECT ops.is_draining(p_worker := $1)").bind(worker.0);
            let draining = self.row(draining).await?.try_get(0).map_err(failed)?;
            Ok(HeartbeatResponse { held, draining })
        })
    }

    fn retire(&self, worker: WorkerId, now: Timestamp) -> InterfaceFuture<'_, ()> {
        let call =
            sqlx::query("SELECT ops.retire_worker(p_worker := $1, p_now := $2)").bind(worker.0).bind(now);
        Box::pin(async move { self.row(call).await.map(|_| ()) })
    }

    fn sweep(
        &self,
        limit: usize,
        dead_after_secs: f64,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<SweptRun>> {
        Box::pin(self.owner.sweep(limit, dead_after_secs, Some(now)))
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.worker.close())
    }
}
