-- The youngest first: ids sort by age, so the primary key gives the order and the page.
SELECT r.run_id, r.project_id, r.env_id, r.lane, r.status, r.gate, r.git_sha, r.git_ref, r.metadata, r.idempotency_key,
       r.priority, s.labels, r.concurrency_key, r.available_at, r.expires_at, r.timeout_secs, r.attempt, r.failures,
       r.losses, r.max_attempts, r.max_losses, r.backoff_secs, r.retry_of, r.claimed_by, r.worker_id, r.epoch,
       r.lease_until, r.deadline_at, r.cancel_requested_at, r.cancel_requested_by, r.cancel_reason, r.end_cause,
       r.queued_at, r.started_at, r.finished_at, r.created_at, r.updated_at
  FROM {ops}.runs r JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE ($1 IS NULL OR r.project_id = $1)
   AND ($2 IS NULL OR r.env_id = r.project_id || '/' || $2)
   AND ($3 IS NULL OR r.status = $3)
   AND ($4 IS NULL OR r.lane = $4)
   AND ($5 IS NULL OR r.run_id < $5)
 ORDER BY r.run_id DESC
 LIMIT $6
