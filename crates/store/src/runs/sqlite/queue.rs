//! Queues a run. The same key with an equal request returns the existing run; a different request is refused.

use super::super::QueueOutcome;
use super::gate::Arrival;
use super::{failed, json, refused_with_hint};
use crate::codec::{Columns as _, SqlJson, SqlTextList, SqlTime};
use crate::{Error, RefusalCode, catalog};
use sqlx::SqliteConnection;
use tidemill_core::json::check_text;
use tidemill_core::limits::{
    ATTEMPTS_MAX, BACKOFF_SECS_MAX, KEY_BYTES_MAX, KIND_BYTES_MAX, LABELS_MAX, METADATA_BYTES_MAX,
    PRIORITY_MAX,
};
use tidemill_core::run::{QueueRun, RunState};
use tidemill_core::text::first_control;
use tidemill_core::time::is_in_range;
use tidemill_core::{Json, RunId, Timestamp};

const ACTION: &str = "queue a run";
/// Maximum timeout of a run: one year.
const TIMEOUT_SECS_MAX: i32 = 365 * 24 * 3_600;

/// The environment and the label set of a run.
struct Place {
    env_id: String,
    label_set_id: Option<i64>,
}

/// An existing run with the key or the id of the request.
struct Earlier {
    run_id: RunId,
    project_id: String,
    status: RunState,
    queued_at: Timestamp,
    request: Option<Json>,
}

pub(in crate::runs) async fn queue(
    conn: &mut SqliteConnection,
    request: &QueueRun,
    run_id: &RunId,
    now: Timestamp,
) -> Result<QueueOutcome, Error> {
    check(request, run_id)?;
    insert(conn, request, run_id, now).await
}

/// Queues a run whose request was checked.
pub(super) async fn insert(
    conn: &mut SqliteConnection,
    request: &QueueRun,
    run_id: &RunId,
    now: Timestamp,
) -> Result<QueueOutcome, Error> {
    let mut labels = request.labels.clone();
    labels.sort();
    labels.dedup();
    let labels = SqlTextList(labels);
    let (place, earlier) = look(conn, request, run_id, &labels).await?;
    let body = request.idempotency_key.is_some().then(|| body(request, &labels.0));
    if let Some(earlier) = earlier {
        return answer(request, run_id, earlier, body.as_ref());
    }
    let label_set_id = match place.label_set_id {
        Some(id) => id,
        None => insert_label_set(conn, &request.project, &labels).await?,
    };
    let arrival = Arrival {
        run: run_id,
        project: &request.project,
        key: request.concurrency_key.as_deref(),
        priority: request.priority,
        ready_at: request.available_at.map_or(now, |at| at.max(now)),
        available_at: request.available_at,
    };
    let gate = arrival.enter(conn, now, ACTION).await?;
    sqlx::query(catalog::sqlite(catalog::QUEUE_INSERT))
        .bind(run_id.as_str())
        .bind(&request.project)
        .bind(place.env_id)
        .bind(&request.git_sha)
        .bind(&request.git_ref)
        .bind(request.metadata.to_string())
        .bind(&request.idempotency_key)
        .bind(body.map(SqlJson))
        .bind(request.priority)
        .bind(label_set_id)
        .bind(&request.concurrency_key)
        .bind(gate.as_str())
        .bind(SqlTime(request.available_at.map_or(now, |at| at.max(now))))
        .bind(request.available_at.map(SqlTime))
        .bind(request.expires_at.map(SqlTime))
        .bind(request.timeout_secs)
        .bind(request.max_attempts)
        .bind(request.max_losses)
        .bind(request.backoff_secs)
        .bind(SqlTime(now))
        .bind(&request.kind)
        .execute(conn)
        .await
        .map_err(failed(ACTION))?;
    Ok(QueueOutcome { run_id: run_id.clone(), status: RunState::Queued, queued_at: now, created: true })
}

/// Checks the limits of a request, with the messages of `check_request`. The engine has already reported all invalid
/// fields at once.
pub(super) fn check(request: &QueueRun, run_id: &RunId) -> Result<(), Error> {
    let texts = [&request.git_sha, &request.git_ref, &request.idempotency_key, &request.concurrency_key];
    let (code, problem) = if request.kind.len() > KIND_BYTES_MAX {
        let length = request.kind.len();
        (RefusalCode::TooLarge, format!("kind has {length} bytes; at most {KIND_BYTES_MAX} are allowed"))
    } else if first_control(&request.kind).is_some() {
        (RefusalCode::BadValue, "kind must not contain control characters".to_owned())
    } else if !request.metadata.is_object() {
        (RefusalCode::BadValue, "metadata must be a JSON object".to_owned())
    } else if request.metadata.to_string().len() > METADATA_BYTES_MAX {
        (RefusalCode::TooLarge, format!("metadata is larger than {METADATA_BYTES_MAX} bytes"))
    } else if let Err(problem) = check_text(request.metadata.to_string()) {
        (RefusalCode::BadValue, format!("metadata {}", problem.with_advice()))
    } else if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&request.priority) {
        (RefusalCode::BadValue, format!("priority must be between -{PRIORITY_MAX} and {PRIORITY_MAX}"))
    } else if !(1..=ATTEMPTS_MAX).contains(&request.max_attempts)
        || !(0..=ATTEMPTS_MAX).contains(&request.max_losses)
    {
        let bounds =
            format!("attempts must be between 1 and {ATTEMPTS_MAX}, losses between 0 and {ATTEMPTS_MAX}");
        (RefusalCode::BadValue, bounds)
    } else if !(0..=BACKOFF_SECS_MAX).contains(&request.backoff_secs)
        || request.timeout_secs.is_some_and(|secs| !(1..=TIMEOUT_SECS_MAX).contains(&secs))
    {
        let bounds = format!(
            "back-off must be between 0 and {BACKOFF_SECS_MAX} seconds, a timeout between 1 second and a year"
        );
        (RefusalCode::BadValue, bounds)
    } else if request.labels.len() > LABELS_MAX {
        (RefusalCode::BadValue, format!("a run has at most {LABELS_MAX} labels, and none of them is NULL"))
    } else if texts.into_iter().flatten().chain(&request.labels).any(String::is_empty) {
        let rule = "git sha, git ref, keys and labels must not be empty";
        (RefusalCode::BadValue, rule.to_owned())
    } else if texts.into_iter().flatten().chain(&request.labels).any(|text| first_control(text).is_some()) {
        let rule = "git sha, git ref, keys and labels must not contain control characters";
        (RefusalCode::BadValue, rule.to_owned())
    } else if texts.into_iter().flatten().any(|text| text.len() > KEY_BYTES_MAX) {
        (RefusalCode::TooLarge, format!("git sha, git ref and keys are at most {KEY_BYTES_MAX} bytes each"))
    } else if request.labels.iter().any(|label| label.len() > KEY_BYTES_MAX) {
        (RefusalCode::TooLarge, format!("labels are at most {KEY_BYTES_MAX} bytes each"))
    } else if [request.available_at, request.expires_at].into_iter().flatten().any(|at| !is_in_range(at)) {
        (RefusalCode::BadValue, "times must be between the years 1 and 9999".to_owned())
    } else if request.expires_at.is_some() && request.expires_at <= request.available_at {
        (RefusalCode::BadValue, "a run cannot expire before it is available".to_owned())
    } else {
        return Ok(tidemill_core::request::check_new_run_id(run_id)?);
    };
    Err(Error::refused(code, problem))
}

async fn look(
    conn: &mut SqliteConnection,
    request: &QueueRun,
    run_id: &RunId,
    labels: &SqlTextList,
) -> Result<(Place, Option<Earlier>), Error> {
    let row = sqlx::query(catalog::sqlite(catalog::QUEUE_LOOKUP))
        .bind(&request.project)
        .bind(&request.env)
        .bind(labels)
        .bind(&request.idempotency_key)
        .bind(run_id.as_str())
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed(ACTION))?;
    let Some(row) = row else { return Err(refuse_place(conn, &request.project, &request.env).await?) };
    let read = || -> sqlx::Result<(Place, Option<Earlier>)> {
        let place = Place { env_id: row.text("env_id")?, label_set_id: row.long_or_null("label_set_id")? };
        let Some(found) = row.parsed_or_null("run_id")? else { return Ok((place, None)) };
        let asked = row.text_or_null("request")?.map(|_| row.json("request")).transpose()?;
        let earlier = Earlier {
            run_id: found,
            project_id: row.text("project_id")?,
            status: row.parsed("status")?,
            queued_at: row.time("queued_at")?,
            request: asked,
        };
        Ok((place, Some(earlier)))
    };
    read().map_err(failed(ACTION))
}

/// Returns the result of a repeated request.
fn answer(
    request: &QueueRun,
    run_id: &RunId,
    earlier: Earlier,
    body: Option<&Json>,
) -> Result<QueueOutcome, Error> {
    if earlier.project_id != request.project {
        return Err(Error::refused(RefusalCode::KeyConflict, format!("run id {run_id} is taken")));
    }
    let repeated = match (&earlier.request, body) {
        (Some(earlier), Some(body)) => json::same(earlier, body),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if !repeated {
        let key = request.idempotency_key.as_deref().unwrap_or("<NULL>");
        let holder = &earlier.run_id;
        return Err(refused_with_hint(
            RefusalCode::KeyConflict,
            format!("idempotency key `{key}` belongs to run {holder}, which was requested with other values"),
            "Use another key for another request.",
        ));
    }
    let Earlier { run_id, status, queued_at, .. } = earlier;
    Ok(QueueOutcome { run_id, status, queued_at, created: false })
}

/// Returns the request in the form that is stored for comparison.
fn body(request: &QueueRun, labels: &[String]) -> Json {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of this century fit into a double")]
    let secs = |at: Option<Timestamp>| at.map(|at| at.timestamp_micros() as f64 / 1_000_000.0);
    serde_json::json!({
        "env": request.env,
        "git_sha": request.git_sha,
        "git_ref": request.git_ref,
        "metadata": request.metadata,
        "priority": request.priority,
        "max_attempts": request.max_attempts,
        "max_losses": request.max_losses,
        "backoff_secs": request.backoff_secs,
        "timeout_secs": request.timeout_secs,
        "concurrency_key": request.concurrency_key,
        "labels": labels,
        "kind": request.kind,
        "available_at": secs(request.available_at),
        "expires_at": secs(request.expires_at),
    })
}

async fn insert_label_set(
    conn: &mut SqliteConnection,
    project: &str,
    labels: &SqlTextList,
) -> Result<i64, Error> {
    sqlx::query_scalar(catalog::sqlite(catalog::QUEUE_LABEL_SET_INSERT))
        .bind(project)
        .bind(labels)
        .fetch_one(conn)
        .await
        .map_err(failed(ACTION))
}

/// Refuses an unknown project or environment.
pub(super) async fn check_environment(
    conn: &mut SqliteConnection,
    project: &str,
    env: &str,
) -> Result<(), Error> {
    let found: Option<i64> = sqlx::query_scalar(catalog::sqlite(catalog::QUEUE_ENVIRONMENT))
        .bind(project)
        .bind(env)
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed(ACTION))?;
    if found.is_some() { Ok(()) } else { Err(refuse_place(conn, project, env).await?) }
}

/// Creates the refusal for an unknown project or environment.
async fn refuse_place(conn: &mut SqliteConnection, project: &str, env: &str) -> Result<Error, Error> {
    let names: Option<Option<String>> = sqlx::query_scalar(catalog::sqlite(catalog::QUEUE_ENVIRONMENT_NAMES))
        .bind(project)
        .fetch_optional(conn)
        .await
        .map_err(failed(ACTION))?;
    Ok(match names {
        None => Error::unknown_project(project, Some(env)),
        Some(names) => refused_with_hint(
            RefusalCode::UnknownEnvironment,
            format!("project `{project}` has no environment `{env}`"),
            format!("It has: {}", names.as_deref().unwrap_or("none")),
        ),
    })
}
