//! Claims runs: of every shelf that fits, the highest priority first, then the oldest.

use super::super::ClaimRuns;
use super::{count, failed, gate, refused_with_hint};
use crate::codec::{At, Boot, Columns as _, Words};
use crate::tx::FromColumns as _;
use crate::{Error, RefusalCode};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;
use std::cmp::Reverse;
use tidemill_core::Timestamp;
use tidemill_core::limits::{BATCH_MAX, LEASE_SECS};
use tidemill_core::run::Claim;

const ACTION: &str = "claim runs";

/// What has to be settled before anything is claimed.
pub(super) const BEFORE: &str = "\
    SELECT iif($2 IS NULL, 0, EXISTS (SELECT 1 FROM runs WHERE claimed_by = $1 AND claim_request = $2 \
                                         AND status IN ('claimed', 'running'))) AS asked_before, \
           (SELECT iif(ended_at IS NOT NULL, 'ended', iif(draining, 'draining', NULL)) \
              FROM workers WHERE worker_id = $3) AS stays_out, \
           EXISTS (SELECT 1 FROM runs WHERE gate = 'time' AND available_at <= $4) AS any_due";

pub(super) const ASKED_BEFORE: &str = "\
    SELECT run_id, project_id, env_id, git_sha, git_ref, metadata, epoch, attempt, timeout_secs, \
           lease_until, priority, ready_at \
      FROM runs WHERE claimed_by = $1 AND claim_request = $2 AND status IN ('claimed', 'running')";

/// The queue of `ahead` begins with the head of every shelf that fits, and gets the next of a shelf whenever
/// it gives one away: the shelves are merged in order, and no more of any is read than is claimed, one
/// look-up each in `runs_ready`. Pauses and labels are looked at per shelf, so that runs behind them cost
/// nothing.
pub(super) const CLAIM: &str = "\
    WITH RECURSIVE fitting (shelf_id) AS ( \
        SELECT s.shelf_id FROM shelves s \
         WHERE NOT EXISTS (SELECT 1 FROM json_each(s.labels) need \
                            WHERE need.value NOT IN (SELECT offer.value FROM json_each($1) offer)) \
           AND ($2 IS NULL OR s.project_id IN (SELECT p.value FROM json_each($2) p)) \
           AND NOT EXISTS (SELECT 1 FROM flags f \
                            WHERE f.flag = 'paused' AND f.scope IN \
                                  (CASE WHEN 'tidemill.sync' IN (SELECT l.value FROM json_each(s.labels) l) \
                                        THEN 'lane:sync' ELSE 'lane:ops' END, 'project:' || s.project_id) \
                              AND (f.until_at IS NULL OR f.until_at > $4))), \
    ahead (shelf_id, priority, ready_at, run_id) AS ( \
        SELECT r.shelf_id, r.priority, r.ready_at, r.run_id \
          FROM fitting s CROSS JOIN runs r ON r.run_id = \
               (SELECT h.run_id FROM runs h WHERE h.shelf_id = s.shelf_id AND h.gate = 'open' \
                 ORDER BY h.priority DESC, h.ready_at, h.run_id LIMIT 1) \
         UNION ALL \
        SELECT r.shelf_id, r.priority, r.ready_at, r.run_id \
          FROM ahead a CROSS JOIN runs r ON r.run_id = coalesce( \
               (SELECT n.run_id FROM runs n WHERE n.shelf_id = a.shelf_id AND n.gate = 'open' \
                   AND n.priority = a.priority AND n.ready_at = a.ready_at AND n.run_id > a.run_id \
                 ORDER BY n.run_id LIMIT 1), \
               (SELECT n.run_id FROM runs n WHERE n.shelf_id = a.shelf_id AND n.gate = 'open' \
                   AND n.priority = a.priority AND n.ready_at > a.ready_at \
                 ORDER BY n.ready_at, n.run_id LIMIT 1), \
               (SELECT n.run_id FROM runs n WHERE n.shelf_id = a.shelf_id AND n.gate = 'open' \
                   AND n.priority < a.priority \
                 ORDER BY n.priority DESC, n.ready_at, n.run_id LIMIT 1)) \
         ORDER BY 2 DESC, 3, 4 LIMIT +$3) \
    UPDATE runs \
       SET status = 'claimed', gate = NULL, claimed_by = $5, worker_id = $6, claim_request = $7, \
           epoch = min(epoch, 2147483646) + 1, started_at = $4, updated_at = $4, \
           lease_secs = iif($6 IS NULL, $8, coalesce($8, $9)), \
           lease_until = $4 + coalesce($8, $9) * 1000000 \
     WHERE run_id IN (SELECT a.run_id FROM ahead a) \
    RETURNING run_id, project_id, env_id, git_sha, git_ref, metadata, epoch, attempt, timeout_secs, \
              lease_until, priority, ready_at";

pub(in crate::runs) async fn claim(
    conn: &mut SqliteConnection,
    ask: &ClaimRuns,
    now: Timestamp,
) -> Result<Vec<Claim>, Error> {
    if ask.worker.is_empty() {
        return Err(Error::refused(RefusalCode::BadValue, "a worker claims under a name"));
    }
    if ask.lease_secs.is_some_and(|secs| !(1..=86_400).contains(&secs)) {
        return Err(Error::refused(RefusalCode::BadValue, "a lease lasts between 1 and 86400 seconds"));
    }
    let before = sqlx::query(BEFORE)
        .bind(&ask.worker)
        .bind(&ask.request_id)
        .bind(ask.worker_id.map(Boot))
        .bind(At(now))
        .fetch_one(&mut *conn)
        .await
        .map_err(failed(ACTION))?;
    if before.truth("asked_before").map_err(failed(ACTION))? {
        let rows = sqlx::query(ASKED_BEFORE).bind(&ask.worker).bind(&ask.request_id).fetch_all(conn).await;
        return in_order(&rows.map_err(failed(ACTION))?);
    }
    match before.text_or_null("stays_out").map_err(failed(ACTION))?.as_deref() {
        Some("ended") => {
            return Err(refused_with_hint(
                RefusalCode::Stale,
                format!("worker {} was found dead, and its runs were given to others", ask.worker),
                "Stop what it runs, and register anew.",
            ));
        }
        // It drains: what it was given before under this request id was its answer above.
        Some(_) => return Ok(Vec::new()),
        None => {}
    }
    if before.truth("any_due").map_err(failed(ACTION))? {
        gate::open_due(conn, now, ACTION).await?;
    }
    let rows = sqlx::query(CLAIM)
        .bind(Words(ask.labels.clone()))
        .bind(ask.projects.clone().map(Words))
        .bind(count(ask.limit.clamp(1, BATCH_MAX)))
        .bind(At(now))
        .bind(&ask.worker)
        .bind(ask.worker_id.map(Boot))
        .bind(&ask.request_id)
        .bind(ask.lease_secs.map(|secs| i64::try_from(secs).unwrap_or(i64::MAX)))
        .bind(i64::try_from(LEASE_SECS).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await
        .map_err(failed(ACTION))?;
    in_order(&rows)
}

/// The claimed runs, the first to be done first: RETURNING promises no order.
fn in_order(rows: &[SqliteRow]) -> Result<Vec<Claim>, Error> {
    let read = |row: &SqliteRow| -> sqlx::Result<_> {
        let place = (Reverse(row.int("priority")?), row.long("ready_at")?);
        Ok((place, Claim::read(row)?))
    };
    let mut claims: Vec<_> = rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(failed(ACTION))?;
    claims.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.run_id.cmp(&other.run_id)));
    Ok(claims.into_iter().map(|(_, claim)| claim).collect())
}
