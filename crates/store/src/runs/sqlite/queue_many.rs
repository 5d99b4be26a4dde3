//! Queues several runs in one transaction, in the order of the requests.
//!
//! All requests are checked before the first is queued, so that a call with several errors reports the same one as on
//! PostgreSQL.

use super::super::QueueOutcome;
use super::queue;
use crate::Error;
use sqlx::SqliteConnection;
use std::collections::HashSet;
use tidemill_core::run::QueueRun;
use tidemill_core::{RunId, Timestamp};

pub(in crate::runs) async fn queue_many(
    conn: &mut SqliteConnection,
    requests: &[(QueueRun, RunId)],
    now: Timestamp,
) -> Result<Vec<QueueOutcome>, Error> {
    for (position, (request, run_id)) in requests.iter().enumerate() {
        queue::check(request, run_id).map_err(|error| error.at_position(position))?;
    }
    let mut known = HashSet::new();
    for (position, (request, _)) in requests.iter().enumerate() {
        if known.insert((&request.project, &request.env)) {
            let checked = queue::check_environment(conn, &request.project, &request.env).await;
            checked.map_err(|error| error.at_position(position))?;
        }
    }
    let mut outcomes = Vec::with_capacity(requests.len());
    for (position, (request, run_id)) in requests.iter().enumerate() {
        let queued = queue::insert(conn, request, run_id, now).await;
        outcomes.push(queued.map_err(|error| error.at_position(position))?);
    }
    Ok(outcomes)
}
