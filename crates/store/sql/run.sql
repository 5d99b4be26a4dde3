-- Runs and their artifacts.

-- fragment: run_columns
-- The columns of a run `r` and its label set `s`, as every statement that returns whole runs reads them.
r.run_id, r.project_id, r.env_id, r.lane, r.kind, r.status, r.gate, r.git_sha, r.git_ref, r.metadata, r.idempotency_key,
r.priority, s.labels, r.concurrency_key, r.available_at, r.expires_at, r.timeout_secs, r.attempt, r.failures, r.losses,
r.max_attempts, r.max_losses, r.backoff_secs, r.retry_of, r.claimed_by, r.worker_id, r.epoch, r.lease_until,
r.deadline_at, r.cancel_requested_at, r.cancel_requested_by, r.cancel_reason, r.stalled_at, r.end_cause, r.queued_at,
r.started_at, r.finished_at, r.created_at, r.updated_at

-- name: run_get
SELECT {run_columns}
  FROM {ops}.runs r JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE r.run_id = $1

-- name: run_claims (postgres)
-- The claims of these runs. Unknown runs are left out.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT r.run_id, r.project_id, r.lane, r.kind, r.claimed_by, r.epoch, r.claim_request
  FROM {ops}.runs r WHERE r.run_id = ANY ($1)

-- name: run_claims (sqlite)
SELECT r.run_id, r.project_id, r.lane, r.kind, r.claimed_by, r.epoch, r.claim_request
  FROM {ops}.runs r WHERE r.run_id IN (SELECT value FROM json_each($1))

-- name: run_successor
SELECT run_id AS value FROM {ops}.run_lookup WHERE kind = 'retry_of' AND value = $1

-- name: artifact_list
SELECT artifact_id, run_id, artifact_type, url, digest, size_bytes, metadata, created_at
  FROM {ops}.artifacts
 WHERE run_id = $1
   AND ($3 IS NULL OR (created_at, artifact_type, url) > (SELECT p.created_at, p.artifact_type, p.url
                                                            FROM {ops}.artifacts p
                                                           WHERE p.run_id = $1 AND p.artifact_id = $3))
 ORDER BY created_at, artifact_type, url LIMIT $2

-- name: runs_stalled
-- Reads only held runs, by the index runs_held.
SELECT r.run_id AS value FROM {ops}.runs r
 WHERE r.status IN ('claimed', 'running') AND r.stalled_at IS NOT NULL ORDER BY r.run_id LIMIT $1

-- name: run_lane
UPDATE {ops}.runs SET lane = $2 WHERE run_id = $1 AND lane <> $2

-- name: run_lock (postgres)
-- Differs: SQLite has one writer at a time and needs no row locks.
SELECT status AS value FROM {ops}.runs WHERE run_id = $1 FOR NO KEY UPDATE

-- name: run_lock (sqlite)
SELECT status AS value FROM {ops}.runs WHERE run_id = $1

-- name: run_unlease
-- A run without a worker has no lease, so that the sweeper does not take it for lost: its parts have leases of their
-- own.
UPDATE {ops}.runs
   SET lease_until = NULL, lease_secs = NULL, worker_id = NULL, deadline_at = NULL, updated_at = coalesce($2, {now})
 WHERE run_id = $1 AND status = 'running'

-- name: run_take
-- Claims a run that needs no worker, such as the run of a sync. RUN_GO follows in the same transaction.
UPDATE {ops}.runs
   SET status = 'claimed', gate = NULL, claimed_by = $2, epoch = epoch + 1, started_at = coalesce($3, {now}),
       lease_secs = {lease_secs}, lease_until = coalesce($4, {now}), updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND status = 'queued' AND gate = 'open'

-- name: run_go
UPDATE {ops}.runs SET status = 'running', updated_at = coalesce($2, {now}) WHERE run_id = $1 AND status = 'claimed'

-- name: run_end (postgres)
-- Differs: JSON objects are merged with || on PostgreSQL and with json_patch on SQLite.
UPDATE {ops}.runs
   SET status = $2, end_cause = $3, finished_at = coalesce($5, {now}), updated_at = coalesce($5, {now}), gate = NULL,
       input = coalesce(input, metadata), metadata = metadata || $4
 WHERE run_id = $1 AND status = 'running'

-- name: run_end (sqlite)
UPDATE {ops}.runs
   SET status = $2, end_cause = $3, finished_at = $5, updated_at = $5, gate = NULL,
       input = coalesce(input, metadata), metadata = json_patch(metadata, $4)
 WHERE run_id = $1 AND status = 'running'
