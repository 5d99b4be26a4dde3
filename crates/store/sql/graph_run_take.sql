-- The first job of a graph begins, and the run with it. RUN_GO and RUN_UNLEASE follow.
UPDATE {ops}.runs
   SET status = 'claimed', gate = NULL, claimed_by = $2, epoch = epoch + 1, started_at = $3,
       lease_secs = {lease_secs}, lease_until = $4, updated_at = $3
 WHERE run_id = $1 AND lane = 'graph' AND status = 'queued'
