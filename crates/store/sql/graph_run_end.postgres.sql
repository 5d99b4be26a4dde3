-- Differs: how JSON is merged.
-- The last job of a graph has ended, and the run with it.
UPDATE {ops}.runs
   SET status = $2, end_cause = $3, finished_at = $5, updated_at = $5, gate = NULL,
       input = coalesce(input, metadata), metadata = metadata || $4
 WHERE run_id = $1 AND lane = 'graph' AND status IN ('queued', 'running')
