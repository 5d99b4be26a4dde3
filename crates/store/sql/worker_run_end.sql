UPDATE {sync}.worker_runs SET status = $3, error_message = $4, completed_at = coalesce($5, {now})
 WHERE run_id = $1 AND partition_id = $2 AND status = 'running'
