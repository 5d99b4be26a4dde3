UPDATE {ops}.feeds SET last_updated_at = $2, last_run_id = $3, last_run_completed_at = coalesce($4, {now})
 WHERE feed = $1
