UPDATE {sync}.worker_runs SET status = 'failed', error_message = $2, completed_at = coalesce($3, {now})
 WHERE run_id = $1 AND status = 'running'
