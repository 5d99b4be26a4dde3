-- Cancels and retries runs, and records artifacts.

-- name: cancel_queued
UPDATE runs
   SET status = 'cancelled', gate = NULL, finished_at = $2, updated_at = $2, end_cause = 'cancelled',
       cancel_requested_at = $2, cancel_requested_by = $3, cancel_reason = $4,
       input = coalesce(input, metadata), metadata = $5
 WHERE run_id = $1

-- name: cancel_request
UPDATE runs
   SET cancel_requested_at = $2, cancel_requested_by = $3, cancel_reason = $4,
       cancel_deadline_at = $2 + {cancel_grace_secs} * 1000000, updated_at = $2
 WHERE run_id = $1

-- name: cancel_jobs
UPDATE jobs SET cancelled_at = $2, cancelled_by = $3
 WHERE run_id = $1 AND ended_at IS NULL AND cancelled_at IS NULL

-- name: cancel_graph
UPDATE graphs SET cancelled_at = $2, cancelled_by = $3, cancel_reason = $4
 WHERE run_id = $1 AND cancelled_at IS NULL

-- name: retry_insert
-- Queues the successor of a run, with the metadata of the original request.
INSERT INTO runs (run_id, project_id, env_id, lane, kind, git_sha, git_ref, metadata, priority,
    label_set_id, concurrency_key, gate, ready_at, available_at, timeout_secs, attempt, failures, losses,
    max_attempts, max_losses, backoff_secs, retry_of, queued_at, created_at, updated_at)
SELECT $2, project_id, env_id, lane, kind, git_sha, git_ref, coalesce(input, metadata), priority,
       label_set_id, concurrency_key, $3, $4, $5, timeout_secs, $6, $7, $8,
       max_attempts, max_losses, backoff_secs, run_id, $9, $9, $9
  FROM runs WHERE run_id = $1

-- name: artifact_insert
-- The same type and URL is the same artifact.
INSERT INTO artifacts AS a (artifact_id, run_id, artifact_type, url, digest, size_bytes, metadata, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (run_id, artifact_type, url) DO UPDATE
   SET digest = coalesce(excluded.digest, a.digest), size_bytes = coalesce(excluded.size_bytes, a.size_bytes)
RETURNING artifact_id
