-- Statistics and metrics.

-- name: stats_queue (postgres)
-- Differs: on PostgreSQL an interval is not a number, and infinite times have no difference. On SQLite times are
-- microseconds.
SELECT count(*) AS queued, count(*) FILTER (WHERE gate = 'open') AS ready,
       (extract(epoch FROM $1)
        - extract(epoch FROM min(ready_at) FILTER (WHERE gate = 'open' AND isfinite(ready_at))))::float8 AS oldest_secs
  FROM {ops}.runs WHERE gate IS NOT NULL AND (CAST($2 AS text) IS NULL OR project_id = $2)

-- name: stats_queue (sqlite)
SELECT count(*) AS queued, count(*) FILTER (WHERE gate = 'open') AS ready,
       ($1 - min(ready_at) FILTER (WHERE gate = 'open')) / 1000000.0 AS oldest_secs
  FROM {ops}.runs WHERE gate IS NOT NULL AND (CAST($2 AS text) IS NULL OR project_id = $2)

-- name: stats_active
SELECT claimed_by, count(*) AS active_runs FROM {ops}.runs
 WHERE status IN ('claimed', 'running') AND claimed_by IS NOT NULL AND finished_at IS NULL
   AND (CAST($1 AS text) IS NULL OR project_id = $1)
 GROUP BY claimed_by ORDER BY claimed_by

-- name: stats_outcomes
SELECT count(*) FILTER (WHERE status = 'success') AS success_count,
       count(*) FILTER (WHERE status = 'failed') AS failed_count
  FROM {ops}.runs WHERE created_at > $1 AND (CAST($2 AS text) IS NULL OR project_id = $2)

-- name: stats_durations (postgres)
-- Differs: on PostgreSQL an interval is not a number, and infinite times have no difference. On SQLite times are
-- microseconds.
SELECT status, avg(extract(epoch FROM finished_at) - extract(epoch FROM started_at))::float8 AS mean_secs,
       count(*) AS runs
  FROM {ops}.runs WHERE created_at > $1 AND isfinite(finished_at) AND isfinite(started_at)
   AND (CAST($2 AS text) IS NULL OR project_id = $2)
 GROUP BY status ORDER BY status

-- name: stats_durations (sqlite)
SELECT status, avg((finished_at - started_at) / 1000000.0) AS mean_secs, count(*) AS runs
  FROM {ops}.runs WHERE created_at > $1 AND finished_at IS NOT NULL AND started_at IS NOT NULL
   AND (CAST($2 AS text) IS NULL OR project_id = $2)
 GROUP BY status ORDER BY status

-- name: standing_now
-- Metrics of everything that waits. Counts stop at 100000, so that no scrape reads a large table completely. $1 is the
-- time, $2 the time before which a partition counts as stuck.
SELECT 'runs_queued' AS name, CAST(gate AS text) AS label, count(*) AS value, min(ready_at) AS since
  FROM (SELECT gate, ready_at FROM {ops}.runs WHERE gate IS NOT NULL LIMIT 100000) waiting GROUP BY gate
UNION ALL
SELECT 'runs_held', CAST(status AS text), count(*), NULL
  FROM (SELECT status FROM {ops}.runs WHERE claimed_by IS NOT NULL AND finished_at IS NULL LIMIT 100000) held
 GROUP BY status
UNION ALL
SELECT 'queue', CAST(queue AS text), 0, NULL FROM {ops}.queues
UNION ALL
SELECT 'queue_ready', CAST(queue AS text), count(*), min(enqueued_at)
  FROM (SELECT queue, enqueued_at FROM {ops}.messages WHERE state = 'live' AND visible_at <= $1
         LIMIT 100000) ready GROUP BY queue
UNION ALL
SELECT CASE WHEN is_locked THEN 'queue_in_flight' ELSE 'queue_delayed' END, CAST(queue AS text), count(*), NULL
  FROM (SELECT queue, locked_by IS NOT NULL AS is_locked FROM {ops}.messages
         WHERE state = 'live' AND visible_at > $1 LIMIT 100000) later GROUP BY queue, is_locked
UNION ALL
SELECT 'queue_dead', CAST(queue AS text), count(*), NULL
  FROM (SELECT queue FROM {ops}.messages WHERE state = 'dead' LIMIT 100000) dead GROUP BY queue
UNION ALL
SELECT 'partitions_stuck', CAST(s.feed AS text), count(*), NULL
  FROM {sync}.run_metadata s JOIN {sync}.partition_progress p ON p.run_id = s.run_id
 WHERE s.state NOT IN ('completed', 'failed') AND p.state NOT IN ('completed', 'failed') AND p.updated_at < $2
 GROUP BY s.feed
UNION ALL
SELECT 'sync_fetched', CAST(s.feed AS text), CAST(sum(p.fetched) AS bigint), NULL
  FROM {sync}.run_metadata s JOIN {sync}.partition_progress p ON p.run_id = s.run_id
 WHERE s.state NOT IN ('completed', 'failed') GROUP BY s.feed
UNION ALL
SELECT 'sync_consolidated', CAST(s.feed AS text), CAST(sum(p.consolidated) AS bigint), NULL
  FROM {sync}.run_metadata s JOIN {sync}.partition_progress p ON p.run_id = s.run_id
 WHERE s.state NOT IN ('completed', 'failed') GROUP BY s.feed
UNION ALL
-- A watermark that holds a number has no age.
SELECT 'watermark', CAST(feed AS text), 0, last_updated_at FROM {ops}.feeds
 WHERE coalesce(settings -> 'definition' -> 'incremental' -> 'kind' ->> 'type', '') <> 'number'
UNION ALL
SELECT 'feed_down', CAST(feed AS text), CASE WHEN circuit ->> 'state' = 'closed' THEN 0 ELSE 1 END, NULL
  FROM {ops}.feeds
UNION ALL
SELECT 'workers', '', count(*), NULL FROM {ops}.workers WHERE ended_at IS NULL
UNION ALL
SELECT 'audit_unsealed', '', count(*), min(at)
  FROM (SELECT at FROM {ops}.audit WHERE seal_no IS NULL LIMIT 100000) unsealed
