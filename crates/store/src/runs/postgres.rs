//! The verbs on PostgreSQL: each calls the SQL function that psql users call too.

mod queue_many;

pub(super) use queue_many::queue_many;

use super::{CancelOutcome, ClaimRuns, FinishRun, Holder, QueueOutcome, RetryOutcome};
use crate::codec::{Columns, SqlJson, SqlTextList, SqlTime, SqlWorkerId};
use crate::tx::{Context, FromColumns};
use crate::{Error, RefusalCode};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres};
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{ChangeOutcome, Claim, FailOutcome, FailRun, FinalStatus, QueueRun};
use tidemill_core::worker::RunLease;
use tidemill_core::{Json, RunId, Timestamp};

/// Renders a call of one of our functions. These texts contain only the name of the schema.
fn call(context: &Context, text: &str) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(text.replace("{ops}", context.schema.name()))).persistent(context.named)
}

/// Reads the only column of a row.
fn value<T>(row: &PgRow, action: &'static str) -> Result<T, Error>
where
    T: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
{
    sqlx::Row::try_get(row, 0).map_err(|source| Error::database(action, source))
}

pub(super) async fn queue(
    conn: &mut PgConnection,
    context: &Context,
    request: &QueueRun,
    run_id: &RunId,
    now: Option<Timestamp>,
) -> Result<QueueOutcome, Error> {
    let text = "SELECT run_id, status, queued_at, created FROM {ops}.queue_run(\
                $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, false, $17, $18)";
    let row = call(context, text)
        .bind(&request.project)
        .bind(&request.env)
        .bind(&request.git_sha)
        .bind(&request.git_ref)
        .bind(SqlJson(request.metadata.clone()))
        .bind(&request.idempotency_key)
        .bind(request.priority)
        .bind(request.available_at.map(SqlTime))
        .bind(request.expires_at.map(SqlTime))
        .bind(request.max_attempts)
        .bind(request.max_losses)
        .bind(request.backoff_secs)
        .bind(request.timeout_secs)
        .bind(&request.concurrency_key)
        .bind(SqlTextList(request.labels.clone()))
        .bind(run_id.as_str())
        .bind(now.map(SqlTime))
        .bind(&request.kind)
        .fetch_one(conn)
        .await
        .map_err(|source| Error::database("queue a run", source))?;
    let read = || -> sqlx::Result<QueueOutcome> {
        Ok(QueueOutcome {
            run_id: row.run_id("run_id")?,
            status: row.parsed("status")?,
            queued_at: row.time("queued_at")?,
            created: row.truth("created")?,
        })
    };
    read().map_err(|source| Error::database("queue a run", source))
}

pub(super) async fn claim(
    conn: &mut PgConnection,
    context: &Context,
    ask: &ClaimRuns,
    now: Option<Timestamp>,
) -> Result<Vec<Claim>, Error> {
    let text = "SELECT run_id, project_id, env_id, git_sha, git_ref, metadata, epoch, attempt, timeout_secs, \
                lease_until, kind FROM {ops}.claim_next_run($1, $2, $3, $4, $5, $6, $7, $8)";
    let rows = call(context, text)
        .bind(&ask.worker)
        .bind(i32::try_from(ask.limit).unwrap_or(i32::MAX))
        .bind(SqlTextList(ask.labels.clone()))
        .bind(ask.projects.clone().map(SqlTextList))
        .bind(ask.worker_id.map(SqlWorkerId))
        .bind(&ask.request_id)
        .bind(ask.lease_secs.map(|secs| i32::try_from(secs).unwrap_or(i32::MAX)))
        .bind(now.map(SqlTime))
        .fetch_all(conn)
        .await
        .map_err(|source| Error::database("claim runs", source))?;
    let claims: sqlx::Result<Vec<Claim>> = rows.iter().map(Claim::read).collect();
    claims.map_err(|source| Error::database("claim runs", source))
}

pub(super) async fn start(
    conn: &mut PgConnection,
    context: &Context,
    run: &RunId,
    holder: &Holder,
    now: Option<Timestamp>,
) -> Result<ChangeOutcome, Error> {
    let action = "start a run";
    let row = call(context, "SELECT {ops}.start_run($1, $2, $3, $4)")
        .bind(run.as_str())
        .bind(&holder.worker)
        .bind(holder.epoch)
        .bind(now.map(SqlTime))
        .fetch_one(conn)
        .await
        .map_err(|source| Error::database(action, source))?;
    Ok(if value::<bool>(&row, action)? { ChangeOutcome::Applied } else { ChangeOutcome::Stale })
}

pub(super) async fn append(
    conn: &mut PgConnection,
    context: &Context,
    run: &RunId,
    events: &[NewEvent],
    holder: &Holder,
    now: Option<Timestamp>,
) -> Result<Vec<Option<String>>, Error> {
    let action = "append events";
    let levels: Vec<_> = events.iter().map(|event| event.level.as_str()).collect();
    let messages: Vec<_> = events.iter().map(|event| event.message.as_str()).collect();
    let payloads: Vec<_> = events.iter().map(|event| sqlx::types::Json(&event.payload)).collect();
    let keys: Vec<_> = events.iter().map(|event| event.key.as_deref()).collect();
    let rows = call(context, "SELECT event_id FROM {ops}.append_events($1, $2, $3, $4, $5, $6, $7, $8)")
        .bind(run.as_str())
        .bind(levels)
        .bind(messages)
        .bind(payloads)
        .bind(keys)
        .bind(&holder.worker)
        .bind(holder.epoch)
        .bind(now.map(SqlTime))
        .fetch_all(conn)
        .await
        .map_err(|source| Error::database(action, source))?;
    rows.iter().map(|row| value::<Option<String>>(row, action)).collect()
}

pub(super) async fn heartbeat(
    conn: &mut PgConnection,
    context: &Context,
    run: &RunId,
    holder: &Holder,
    now: Option<Timestamp>,
) -> Result<RunLease, Error> {
    let action = "renew a lease";
    let row =
        call(context, "SELECT held, cancel_requested, lease_until FROM {ops}.heartbeat($1, $2, $3, $4)")
            .bind(run.as_str())
            .bind(&holder.worker)
            .bind(holder.epoch)
            .bind(now.map(SqlTime))
            .fetch_one(conn)
            .await
            .map_err(|source| Error::database(action, source))?;
    RunLease::read(&row).map_err(|source| Error::database(action, source))
}

pub(super) async fn finish(
    conn: &mut PgConnection,
    context: &Context,
    ends: &[FinishRun],
    worker: Option<&str>,
    now: Option<Timestamp>,
) -> Result<Vec<ChangeOutcome>, Error> {
    let action = "finish runs";
    if let [end] = ends {
        let row = call(context, "SELECT {ops}.finish_run_outcome($1, $2, $3, $4, $5, $6)")
            .bind(end.run_id.as_str())
            .bind(FinalStatus::as_str(end.status))
            .bind(SqlJson(end.metadata.clone()))
            .bind(worker)
            .bind(end.epoch)
            .bind(now.map(SqlTime))
            .fetch_one(conn)
            .await
            .map_err(|source| Error::database(action, source))?;
        return Ok(vec![outcome(&row)?]);
    }
    let ids: Vec<_> = ends.iter().map(|end| end.run_id.as_str()).collect();
    let statuses: Vec<_> = ends.iter().map(|end| FinalStatus::as_str(end.status)).collect();
    let metadata: Vec<_> = ends.iter().map(|end| sqlx::types::Json(&end.metadata)).collect();
    let epochs: Vec<_> = ends.iter().map(|end| end.epoch).collect();
    let rows = call(context, "SELECT outcome FROM {ops}.finish_runs($1, $2, $3, $4, $5, $6)")
        .bind(ids)
        .bind(statuses)
        .bind(metadata)
        .bind(worker)
        .bind(epochs)
        .bind(now.map(SqlTime))
        .fetch_all(conn)
        .await
        .map_err(|source| Error::database(action, source))?;
    rows.iter().map(outcome).collect()
}

/// Reads the outcome of a report.
fn outcome(row: &PgRow) -> Result<ChangeOutcome, Error> {
    Ok(match value::<String>(row, "finish runs")?.as_str() {
        "applied" => ChangeOutcome::Applied,
        "duplicate" => ChangeOutcome::Duplicate,
        _ => ChangeOutcome::Stale,
    })
}

pub(super) async fn cancel(
    conn: &mut PgConnection,
    context: &Context,
    run: &RunId,
    by: &str,
    reason: Option<&str>,
    is_audited: bool,
    now: Option<Timestamp>,
) -> Result<CancelOutcome, Error> {
    let action = "cancel a run";
    let row = call(context, "SELECT {ops}.cancel_run($1, $2, $3, $4, $5)")
        .bind(run.as_str())
        .bind(by)
        .bind(reason)
        .bind(now.map(SqlTime))
        .bind(is_audited)
        .fetch_one(conn)
        .await
        .map_err(|source| Error::database(action, source))?;
    match value::<String>(&row, action)?.as_str() {
        "cancelled" => Ok(CancelOutcome::Cancelled),
        "requested" => Ok(CancelOutcome::Requested),
        "ended" => Ok(CancelOutcome::Ended),
        other => Err(Error::refused(RefusalCode::BadValue, format!("`{other}` is no answer to a cancel"))),
    }
}

pub(super) async fn retry(
    conn: &mut PgConnection,
    context: &Context,
    run: &RunId,
    by: &str,
    with_jobs: bool,
    is_audited: bool,
    now: Option<Timestamp>,
) -> Result<RetryOutcome, Error> {
    let action = "retry a run";
    let row = call(context, "SELECT run_id, created FROM {ops}.retry_run($1, $2, $3, $4, $5)")
        .bind(run.as_str())
        .bind(by)
        .bind(now.map(SqlTime))
        .bind(with_jobs)
        .bind(is_audited)
        .fetch_one(conn)
        .await
        .map_err(|source| Error::database(action, source))?;
    let read = || -> sqlx::Result<RetryOutcome> {
        Ok(RetryOutcome { run_id: row.run_id("run_id")?, created: row.truth("created")? })
    };
    read().map_err(|source| Error::database(action, source))
}

pub(super) async fn fail(
    conn: &mut PgConnection,
    context: &Context,
    ask: &FailRun,
    is_audited: bool,
    now: Option<Timestamp>,
) -> Result<FailOutcome, Error> {
    let action = "fail a run";
    let row = call(context, "SELECT outcome, successor FROM {ops}.fail_run($1, $2, $3, $4, $5, $6)")
        .bind(ask.run_id.as_str())
        .bind(&ask.by)
        .bind(&ask.reason)
        .bind(ask.retry)
        .bind(now.map(SqlTime))
        .bind(is_audited)
        .fetch_one(conn)
        .await
        .map_err(|source| Error::database(action, source))?;
    let read = || -> sqlx::Result<FailOutcome> {
        let is_new = row.text("outcome")? == "applied";
        let outcome = if is_new { ChangeOutcome::Applied } else { ChangeOutcome::Duplicate };
        Ok(FailOutcome { outcome, successor: row.run_id_or_null("successor")? })
    };
    read().map_err(|source| Error::database(action, source))
}

pub(super) async fn add_artifact(
    conn: &mut PgConnection,
    context: &Context,
    run: &RunId,
    artifact: &NewArtifact,
    now: Option<Timestamp>,
) -> Result<String, Error> {
    let action = "record an artifact";
    let metadata: &Json = &artifact.metadata;
    let row = call(context, "SELECT {ops}.add_artifact($1, $2, $3, $4, $5, $6, $7)")
        .bind(run.as_str())
        .bind(&artifact.artifact_type)
        .bind(&artifact.url)
        .bind(&artifact.digest)
        .bind(artifact.size_bytes)
        .bind(SqlJson(metadata.clone()))
        .bind(now.map(SqlTime))
        .fetch_one(conn)
        .await
        .map_err(|source| Error::database(action, source))?;
    value(&row, action)
}
