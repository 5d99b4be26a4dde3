UPDATE {sync}.partition_progress
   SET state = 'failed', failed = true, error = $3, updated_at = coalesce($4, {now}), ended_at = coalesce($4, {now})
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $5 AND NOT completed AND NOT failed
