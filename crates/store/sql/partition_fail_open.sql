UPDATE {sync}.partition_progress
   SET state = 'failed', failed = true, error = $2, updated_at = coalesce($3, {now}), ended_at = coalesce($3, {now})
 WHERE run_id = $1 AND NOT completed AND NOT failed
