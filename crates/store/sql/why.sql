-- Explains why a run waits.

-- name: why_key
SELECT k.head_run_id AS run_id, r.claimed_by
  FROM {ops}.concurrency_keys k LEFT JOIN {ops}.runs r ON r.run_id = k.head_run_id
 WHERE k.project_id = $1 AND k.concurrency_key = $2

-- name: why_ahead
-- Counts at most 1000 runs.
SELECT count(*) AS value FROM (
    SELECT 1 FROM {ops}.runs a, {ops}.runs r
     WHERE r.run_id = $1 AND a.gate = 'open' AND a.run_id <> r.run_id
       AND (a.priority > r.priority OR (a.priority = r.priority AND a.ready_at < r.ready_at))
     LIMIT 1000) ahead

-- name: why_workers (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT count(*) FILTER (WHERE NOT draining) AS alive,
       count(*) FILTER (WHERE NOT draining AND $1::text[] <@ labels) AS fitting,
       count(*) FILTER (WHERE draining AND $1::text[] <@ labels) AS draining
  FROM {ops}.workers WHERE ended_at IS NULL AND beat_at > $2

-- name: why_workers (sqlite)
SELECT coalesce(sum(NOT w.draining), 0) AS alive, coalesce(sum(w.fits AND NOT w.draining), 0) AS fitting,
       coalesce(sum(w.fits AND w.draining), 0) AS draining
  FROM (SELECT l.draining, NOT EXISTS (
                   SELECT 1 FROM json_each($1) need
                    WHERE need.value NOT IN (SELECT offer.value FROM json_each(l.labels) offer)) AS fits
          FROM {ops}.workers l WHERE l.ended_at IS NULL AND l.beat_at > $2) w

-- name: why_beat
SELECT w.beat_at FROM {ops}.workers w JOIN {ops}.runs r ON r.worker_id = w.worker_id WHERE r.run_id = $1

-- name: why_last_event
SELECT message, created_at FROM {ops}.run_events WHERE run_id = $1 AND kind = 'log' ORDER BY seq DESC LIMIT 1
