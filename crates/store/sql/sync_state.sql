UPDATE {sync}.run_metadata SET state = $3, error = $4, updated_at = coalesce($5, {now})
 WHERE run_id = $1 AND state = $2
