-- Differs: how JSON is merged.
UPDATE {ops}.runs
   SET status = $2, end_cause = $3, finished_at = coalesce($5, {now}), updated_at = coalesce($5, {now}), gate = NULL,
       input = coalesce(input, metadata), metadata = metadata || $4
 WHERE run_id = $1 AND status = 'running'
