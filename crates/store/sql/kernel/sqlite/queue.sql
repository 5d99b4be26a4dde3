-- Queues a run. The caller checks the request and enters the concurrency key first.

-- name: queue_lookup
-- The environment, the label set, and the run that an earlier request with this key or id queued.
SELECT e.env_id, s.label_set_id, k.run_id, k.project_id, k.status, k.queued_at, k.request
  FROM environments e
  LEFT JOIN label_sets s ON s.project_id = e.project_id AND s.labels = $3
  LEFT JOIN runs k ON k.run_id = coalesce(
       (SELECT i.run_id FROM runs i WHERE i.project_id = $1 AND i.idempotency_key = $4), $5)
 WHERE e.project_id = $1 AND e.env_type = $2

-- name: queue_insert
INSERT INTO runs (run_id, project_id, env_id, git_sha, git_ref, metadata, idempotency_key, request,
    priority, label_set_id, concurrency_key, gate, ready_at, available_at, expires_at, timeout_secs,
    max_attempts, max_losses, backoff_secs, queued_at, created_at, updated_at, kind)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
    $9, $10, $11, $12, $13, $14, $15, $16,
    $17, $18, $19, $20, $20, $20, $21)

-- name: queue_label_set_insert
INSERT INTO label_sets (project_id, labels) VALUES ($1, $2) RETURNING label_set_id

-- name: queue_environment_names
-- For the refusal of an unknown environment. No row: the project does not exist.
SELECT (SELECT group_concat(e.env_type, ', ')
          FROM (SELECT env_type FROM environments WHERE project_id = $1 ORDER BY env_type) e)
  FROM projects p WHERE p.project_id = $1
