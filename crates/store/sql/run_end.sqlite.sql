-- Differs: how JSON is merged.
UPDATE {ops}.runs
   SET status = $2, end_cause = $3, finished_at = $5, updated_at = $5, gate = NULL,
       input = coalesce(input, metadata), metadata = json_patch(metadata, $4)
 WHERE run_id = $1 AND status = 'running'
