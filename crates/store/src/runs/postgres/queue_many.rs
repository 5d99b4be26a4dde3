//! Queues several runs with one call of `queue_runs`.

use super::call;
use crate::Error;
use crate::codec::{Columns as _, SqlTime};
use crate::runs::QueueOutcome;
use crate::tx::Context;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use tidemill_core::limits::{ATTEMPTS_DEFAULT, BACKOFF_SECS, LOSSES_DEFAULT};
use tidemill_core::run::QueueRun;
use tidemill_core::{RunId, Timestamp};

const ACTION: &str = "queue runs";

/// A request as an element of `p_runs`, without the fields that have their default: the server reads fewer fields.
struct Element<'a>(&'a (QueueRun, RunId));

impl Serialize for Element<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (request, run_id) = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("run_id", run_id.as_str())?;
        map.serialize_entry("project", &request.project)?;
        map.serialize_entry("env", &request.env)?;
        let texts = [
            ("git_sha", &request.git_sha),
            ("git_ref", &request.git_ref),
            ("idempotency_key", &request.idempotency_key),
            ("concurrency_key", &request.concurrency_key),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                map.serialize_entry(field, text)?;
            }
        }
        if !request.kind.is_empty() {
            map.serialize_entry("kind", &request.kind)?;
        }
        if request.metadata.as_object().is_none_or(|fields| !fields.is_empty()) {
            map.serialize_entry("metadata", &request.metadata)?;
        }
        let numbers = [
            ("priority", request.priority, 0),
            ("max_attempts", request.max_attempts, ATTEMPTS_DEFAULT),
            ("max_losses", request.max_losses, LOSSES_DEFAULT),
            ("backoff_secs", request.backoff_secs, BACKOFF_SECS),
        ];
        for (field, number, default) in numbers {
            if number != default {
                map.serialize_entry(field, &number)?;
            }
        }
        if let Some(secs) = request.timeout_secs {
            map.serialize_entry("timeout_secs", &secs)?;
        }
        for (field, at) in [("available_at", request.available_at), ("expires_at", request.expires_at)] {
            if let Some(at) = at {
                map.serialize_entry(field, &at)?;
            }
        }
        if !request.labels.is_empty() {
            map.serialize_entry("labels", &request.labels)?;
        }
        map.end()
    }
}

pub(in crate::runs) async fn queue_many(
    conn: &mut PgConnection,
    context: &Context,
    requests: &[(QueueRun, RunId)],
    now: Option<Timestamp>,
) -> Result<Vec<QueueOutcome>, Error> {
    let text = "SELECT run_id, status, queued_at, created FROM {ops}.queue_runs($1, false, $2)";
    let elements: Vec<_> = requests.iter().map(Element).collect();
    let rows = call(context, text)
        .bind(sqlx::types::Json(elements))
        .bind(now.map(SqlTime))
        .fetch_all(conn)
        .await
        .map_err(|source| Error::database(ACTION, source))?;
    let read = |row: &PgRow| -> sqlx::Result<QueueOutcome> {
        Ok(QueueOutcome {
            run_id: row.run_id("run_id")?,
            status: row.parsed("status")?,
            queued_at: row.time("queued_at")?,
            created: row.truth("created")?,
        })
    };
    rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(|source| Error::database(ACTION, source))
}
