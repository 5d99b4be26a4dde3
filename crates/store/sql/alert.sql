-- Alerts, the run ends that may raise one, the conditions that are watched, and deliveries.

-- fragment: alert_columns
-- The columns of an alert.
alert_id, kind, subject, project_id, feed, run_id, message, created_at, last_at, times, resolved_at

-- name: alert_add
-- An event that repeats while the alert is open counts on the same alert. An empty `sent_at` sends it again.
INSERT INTO {ops}.alerts AS a (kind, subject, project_id, feed, run_id, message, created_at, last_at, times,
                               resolved_at)
VALUES ($1, $2,
        coalesce($3, (SELECT f.project_id FROM {ops}.feeds f WHERE f.feed = $4),
                 (SELECT r.project_id FROM {ops}.runs r WHERE r.run_id = $5)),
        $4, $5, $6, coalesce($7, {now}), coalesce($7, {now}), $8, $10)
ON CONFLICT (kind, subject) WHERE resolved_at IS NULL AND subject <> ''
DO UPDATE SET run_id = coalesce(excluded.run_id, a.run_id), message = excluded.message, last_at = excluded.last_at,
              times = a.times + CAST($9 AS integer),
              sent_at = CASE WHEN CAST($9 AS integer) > 0 THEN NULL ELSE a.sent_at END

-- name: alert_resolve
UPDATE {ops}.alerts SET resolved_at = coalesce($3, {now})
 WHERE kind = $1 AND subject = $2 AND resolved_at IS NULL AND subject <> ''

-- name: alert_lasting
SELECT {alert_columns}
  FROM {ops}.alerts WHERE kind = $1 AND resolved_at IS NULL AND subject <> '' ORDER BY subject LIMIT $2

-- name: alert_list
SELECT {alert_columns}
  FROM {ops}.alerts
 WHERE (CAST($1 AS text) IS NULL OR project_id = $1)
   AND (CAST($2 AS text) IS NULL OR kind = $2)
   AND ($3 OR resolved_at IS NULL)
   AND (CAST($4 AS bigint) IS NULL OR alert_id < $4)
 ORDER BY alert_id DESC LIMIT $5

-- name: alert_unsent
SELECT {alert_columns}
  FROM {ops}.alerts WHERE sent_at IS NULL AND alert_id > $2 ORDER BY alert_id LIMIT $1

-- name: alert_unsent_next
SELECT alert_id AS value FROM {ops}.alerts WHERE sent_at IS NULL AND alert_id > $1 ORDER BY alert_id LIMIT 1

-- name: alert_sent
-- An alert that was raised again meanwhile stays unsent.
UPDATE {ops}.alerts SET sent_at = $3 WHERE alert_id = $1 AND times = $2 AND sent_at IS NULL

-- name: alert_set_aside
UPDATE {ops}.alerts SET sent_at = $2 WHERE alert_id = $1 AND sent_at IS NULL

-- name: alert_lock (postgres)
-- Serializes the deliveries to one target, so that its rate limit holds.
-- Differs: several processes may send alerts. SQLite has one writer at a time.
SELECT CAST(pg_advisory_xact_lock(hashtext('tidemill alerts ' || $1)) AS text) AS value

-- name: alert_lock (sqlite)
SELECT $1 AS value

-- name: notice_take (postgres)
-- Differs: on PostgreSQL, another process may have locked a row, and the next one is taken. SQLite has one writer at a
-- time.
WITH taken AS MATERIALIZED (
    SELECT n.run_id FROM {ops}.run_notices n WHERE n.run_id > $2 ORDER BY n.run_id LIMIT $1 FOR UPDATE SKIP LOCKED)
DELETE FROM {ops}.run_notices n USING taken t WHERE n.run_id = t.run_id RETURNING n.run_id AS value

-- name: notice_take (sqlite)
DELETE FROM {ops}.run_notices
 WHERE run_id IN (SELECT run_id FROM {ops}.run_notices WHERE run_id > $2 ORDER BY run_id LIMIT $1)
RETURNING run_id AS value

-- name: notice_remove
DELETE FROM {ops}.run_notices WHERE run_id = $1

-- name: look_dead
SELECT queue, grp, count(*) AS dead, max(ended_at) AS last_at
  FROM {ops}.messages WHERE state = 'dead' GROUP BY queue, grp ORDER BY queue, grp LIMIT 1000

-- name: look_dead_since
SELECT count(*) AS value FROM {ops}.messages WHERE queue = $1 AND grp = $2 AND state = 'dead' AND ended_at > $3

-- name: look_deep
-- Stops counting at $1, however many runs or messages wait.
SELECT 'project:' || s.project_id AS subject, s.project_id AS project_id,
       (SELECT count(*) FROM (SELECT 1 AS one FROM {ops}.runs r
                               WHERE r.label_set_id = s.label_set_id AND r.gate = 'open' LIMIT $1) AS few) AS waiting
  FROM {ops}.label_sets s
UNION ALL
SELECT 'queue:' || q.queue, NULL,
       (SELECT count(*) FROM (SELECT 1 AS one FROM {ops}.messages m
                               WHERE m.queue = q.queue AND m.state = 'live' LIMIT $1) AS few)
  FROM {ops}.queues q

-- name: look_stuck
-- Skips paused syncs: an operator already knows about them.
SELECT m.ops_run_id AS run_id, m.feed AS feed, count(*) AS stuck, min(p.updated_at) AS since
  FROM {sync}.run_metadata m
  JOIN {sync}.partition_progress p ON p.run_id = m.run_id
  JOIN {ops}.feeds f ON f.feed = m.feed
 WHERE m.state IN ('created', 'workers_running') AND p.state NOT IN ('completed', 'failed') AND p.updated_at < $1
   AND NOT EXISTS (SELECT 1 FROM {ops}.flags x WHERE x.flag = 'paused'
                      AND x.scope IN ('feed:' || m.feed, 'project:' || f.project_id, 'lane:sync'))
 GROUP BY m.ops_run_id, m.feed ORDER BY m.feed LIMIT 1000

-- name: delivery_last
SELECT max(due_at) AS last_at FROM {ops}.deliveries WHERE target = $1 AND kind = $2 AND grp = $3

-- name: delivery_add
-- A waiting delivery that was not tried yet covers all alerts of its group.
INSERT INTO {ops}.deliveries AS d (delivery_id, target, kind, grp, alert_id, alert, due_at, next_at, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8)
ON CONFLICT (target, kind, grp) WHERE attempt = 0 AND sent_at IS NULL AND dead_at IS NULL
DO UPDATE SET alert_id = excluded.alert_id, alert = excluded.alert, held = d.held + 1

-- name: delivery_claim (postgres)
-- Differs: lists are arrays on PostgreSQL, and another process may have locked a row; then the next one is taken. On
-- SQLite lists are JSON, and there is one writer at a time.
WITH taken AS MATERIALIZED (
    SELECT w.delivery_id FROM {ops}.deliveries w
     WHERE w.sent_at IS NULL AND w.dead_at IS NULL AND w.next_at <= $2 AND w.target = ANY ($1)
     ORDER BY w.next_at LIMIT $4 FOR UPDATE SKIP LOCKED)
UPDATE {ops}.deliveries d SET attempt = d.attempt + 1, next_at = $3
  FROM taken t WHERE d.delivery_id = t.delivery_id
RETURNING d.delivery_id, d.target, d.alert, d.held, d.attempt

-- name: delivery_claim (sqlite)
UPDATE {ops}.deliveries SET attempt = attempt + 1, next_at = $3
 WHERE delivery_id IN (SELECT w.delivery_id FROM {ops}.deliveries w
                        WHERE w.sent_at IS NULL AND w.dead_at IS NULL AND w.next_at <= $2
                          AND w.target IN (SELECT j.value FROM json_each($1) j)
                        ORDER BY w.next_at LIMIT $4)
RETURNING delivery_id, target, alert, held, attempt

-- name: delivery_sent
UPDATE {ops}.deliveries SET sent_at = $3, error = NULL
 WHERE delivery_id = $1 AND attempt = $2 AND sent_at IS NULL AND dead_at IS NULL

-- name: delivery_failed
UPDATE {ops}.deliveries SET error = $3, next_at = coalesce($4, next_at), dead_at = $5
 WHERE delivery_id = $1 AND attempt = $2 AND sent_at IS NULL AND dead_at IS NULL
