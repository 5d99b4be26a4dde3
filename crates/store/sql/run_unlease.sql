-- The liveness of such a run is that of its parts: no lease, so that no sweeper takes it for lost.
UPDATE {ops}.runs
   SET lease_until = NULL, lease_secs = NULL, worker_id = NULL, deadline_at = NULL, updated_at = coalesce($2, {now})
 WHERE run_id = $1 AND status = 'running'
