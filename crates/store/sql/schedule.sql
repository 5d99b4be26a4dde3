-- Schedules and their fire times, and webhooks.

-- name: schedule_put
-- Equal values change no row. A fire time that has passed counts as a change.
INSERT INTO {ops}.schedules AS s (schedule_id, project_id, cron, time_zone, request, missed, overlap, next_fire_at,
                             created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (schedule_id) DO UPDATE SET project_id = excluded.project_id, cron = excluded.cron,
    time_zone = excluded.time_zone, request = excluded.request, missed = excluded.missed,
    overlap = excluded.overlap, next_fire_at = excluded.next_fire_at
 WHERE s.project_id <> excluded.project_id OR s.cron <> excluded.cron OR s.time_zone <> excluded.time_zone
    OR s.request <> excluded.request OR s.missed <> excluded.missed OR s.overlap <> excluded.overlap
    OR s.next_fire_at IS DISTINCT FROM excluded.next_fire_at

-- name: schedule_list
SELECT schedule_id, project_id, cron, time_zone, request, missed, overlap, paused_at, paused_note, next_fire_at,
       last_fire_at, last_run_id, created_at
  FROM {ops}.schedules WHERE ($1 IS NULL OR schedule_id = $1) ORDER BY schedule_id

-- name: schedule_remove
DELETE FROM {ops}.schedules WHERE schedule_id = $1

-- name: schedule_pause
-- A schedule that is already paused with this note, or already resumed, does not change.
UPDATE {ops}.schedules SET paused_at = $2, paused_note = $3, next_fire_at = coalesce($4, next_fire_at)
 WHERE schedule_id = $1 AND ((paused_at IS NULL) <> ($2 IS NULL) OR paused_note IS DISTINCT FROM $3)

-- name: schedule_due (postgres)
-- Differs: lists are arrays on PostgreSQL, where another scheduler may have locked a row; then the next one is taken.
-- On SQLite lists are JSON, and there is one writer at a time.
SELECT schedule_id AS value
  FROM {ops}.schedules
 WHERE paused_at IS NULL AND next_fire_at <= $1 AND schedule_id <> ALL ($2)
 ORDER BY next_fire_at LIMIT 1 FOR UPDATE SKIP LOCKED

-- name: schedule_due (sqlite)
SELECT schedule_id AS value
  FROM {ops}.schedules
 WHERE paused_at IS NULL AND next_fire_at <= $1 AND schedule_id NOT IN (SELECT j.value FROM json_each($2) j)
 ORDER BY next_fire_at LIMIT 1

-- name: schedule_next
SELECT min(next_fire_at) AS next_at FROM {ops}.schedules WHERE paused_at IS NULL AND next_fire_at < $1

-- name: schedule_advance
UPDATE {ops}.schedules
   SET next_fire_at = $2, last_fire_at = coalesce($3, last_fire_at), last_run_id = coalesce($4, last_run_id)
 WHERE schedule_id = $1

-- name: fire_record
INSERT INTO {ops}.schedule_fires (schedule_id, fire_at, decision, run_id, decided_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (schedule_id, fire_at) DO NOTHING

-- name: fire_list
SELECT schedule_id, fire_at, decision, run_id FROM {ops}.schedule_fires
 WHERE schedule_id = $1 ORDER BY fire_at DESC LIMIT $2

-- name: hook_put
-- Equal values change no row.
INSERT INTO {ops}.hooks AS h (hook, project_id, kind, secret_env, rules, defined_by, paused_at, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, {now}))
ON CONFLICT (hook) DO UPDATE SET kind = excluded.kind, secret_env = excluded.secret_env, rules = excluded.rules,
    defined_by = excluded.defined_by, paused_at = excluded.paused_at
 WHERE h.project_id = excluded.project_id
   AND (h.kind <> excluded.kind OR h.secret_env <> excluded.secret_env OR h.rules <> excluded.rules
     OR h.defined_by <> excluded.defined_by OR h.paused_at IS DISTINCT FROM excluded.paused_at)

-- name: hook_lock (postgres)
-- Differs: SQLite has one writer at a time and needs no row locks.
SELECT hook AS value FROM {ops}.hooks WHERE hook = $1 FOR UPDATE

-- name: hook_lock (sqlite)
SELECT hook AS value FROM {ops}.hooks WHERE hook = $1

-- name: hook_list
SELECT hook, project_id, kind, secret_env, rules, defined_by, paused_at, created_at
  FROM {ops}.hooks
 WHERE (CAST($1 AS text) IS NULL OR hook = $1) AND (CAST($2 AS text) IS NULL OR project_id = $2)
 ORDER BY hook

-- name: hook_remove
DELETE FROM {ops}.hooks WHERE hook = $1 AND (CAST($2 AS text) IS NULL OR project_id = $2)

-- name: hook_delivery_record
-- A second delivery of the same body waits until the first commits, and then finds its run.
INSERT INTO {ops}.hook_deliveries (hook, body_hash, run_id, received_at)
VALUES ($1, $2, $3, coalesce($4, {now}))
ON CONFLICT (hook, body_hash) DO NOTHING

-- name: hook_delivery_run
SELECT run_id AS value FROM {ops}.hook_deliveries WHERE hook = $1 AND body_hash = $2
