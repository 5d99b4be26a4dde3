SELECT r.run_id, r.project_id, r.env_id, r.lane, r.status, r.gate, r.git_sha, r.git_ref, r.metadata, r.idempotency_key,
       r.priority, s.labels, r.concurrency_key, r.available_at, r.expires_at, r.timeout_secs, r.attempt, r.failures,
       r.losses, r.max_attempts, r.max_losses, r.backoff_secs, r.retry_of, r.claimed_by, r.worker_id, r.epoch,
       r.lease_until, r.deadline_at, r.cancel_requested_at, r.cancel_requested_by, r.cancel_reason, r.stalled_at,
       r.end_cause, r.queued_at, r.started_at, r.finished_at, r.created_at, r.updated_at
  FROM {ops}.runs r JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE r.run_id = $1
