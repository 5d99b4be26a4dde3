//! Claims runs from all matching label sets: highest priority first, then oldest.

use super::super::ClaimRuns;
use super::{count, failed, gate, refused_with_hint};
use crate::codec::{Columns as _, SqlTextList, SqlTime, SqlWorkerId};
use crate::tx::FromColumns as _;
use crate::{Error, RefusalCode, catalog};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;
use std::cmp::Reverse;
use tidemill_core::Timestamp;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::Claim;
use tidemill_core::text::first_control;

const ACTION: &str = "claim runs";

pub(in crate::runs) async fn claim(
    conn: &mut SqliteConnection,
    ask: &ClaimRuns,
    now: Timestamp,
) -> Result<Vec<Claim>, Error> {
    if ask.worker.is_empty() {
        return Err(Error::refused(RefusalCode::BadValue, "worker name must not be empty"));
    }
    for (name, text) in [("p_worker_id", Some(&ask.worker)), ("p_request_id", ask.request_id.as_ref())] {
        if text.is_some_and(|text| first_control(text).is_some()) {
            let message = format!("{name} must not contain control characters");
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
    }
    if ask.lease_secs.is_some_and(|secs| !(1..=86_400).contains(&secs)) {
        return Err(Error::refused(RefusalCode::BadValue, "lease must be between 1 and 86400 seconds"));
    }
    let before = sqlx::query(catalog::sqlite(catalog::CLAIM_PRECHECK))
        .bind(&ask.worker)
        .bind(&ask.request_id)
        .bind(ask.worker_id.map(SqlWorkerId))
        .bind(SqlTime(now))
        .fetch_one(&mut *conn)
        .await
        .map_err(failed(ACTION))?;
    if before.truth("is_repeat").map_err(failed(ACTION))? {
        let claimed = sqlx::query(catalog::sqlite(catalog::CLAIM_REPEAT));
        let rows = claimed.bind(&ask.worker).bind(&ask.request_id).fetch_all(conn).await;
        return in_order(&rows.map_err(failed(ACTION))?);
    }
    match before.text_or_null("worker_state").map_err(failed(ACTION))?.as_deref() {
        Some("ended") => {
            return Err(refused_with_hint(
                RefusalCode::Stale,
                format!("worker {} was declared dead, and its runs were given to other workers", ask.worker),
                "Stop its commands, and register again.",
            ));
        }
        // The worker drains: it got the runs that it holds under this request id above, and gets no new ones.
        Some(_) => return Ok(Vec::new()),
        None => {}
    }
    if before.truth("any_due").map_err(failed(ACTION))? {
        gate::open_due(conn, now, ACTION).await?;
    }
    let rows = sqlx::query(catalog::sqlite(catalog::CLAIM_RUNS))
        .bind(SqlTextList(ask.labels.clone()))
        .bind(ask.projects.clone().map(SqlTextList))
        .bind(count(ask.limit.clamp(1, BATCH_MAX)))
        .bind(SqlTime(now))
        .bind(&ask.worker)
        .bind(ask.worker_id.map(SqlWorkerId))
        .bind(&ask.request_id)
        .bind(ask.lease_secs.map(|secs| i64::try_from(secs).unwrap_or(i64::MAX)))
        .fetch_all(conn)
        .await
        .map_err(failed(ACTION))?;
    in_order(&rows)
}

/// Sorts the claimed runs, because RETURNING guarantees no order.
fn in_order(rows: &[SqliteRow]) -> Result<Vec<Claim>, Error> {
    let read = |row: &SqliteRow| -> sqlx::Result<_> {
        let place = (Reverse(row.int("priority")?), row.long("ready_at")?);
        Ok((place, Claim::read(row)?))
    };
    let mut claims: Vec<_> = rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(failed(ACTION))?;
    claims.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.run_id.cmp(&other.run_id)));
    Ok(claims.into_iter().map(|(_, claim)| claim).collect())
}
