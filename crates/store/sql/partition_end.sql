UPDATE {sync}.partition_progress
   SET state = 'completed', completed = true, recount = $5, error = NULL, updated_at = coalesce($6, {now}),
       ended_at = coalesce($6, {now})
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $3 AND pass = $4 AND NOT completed AND NOT failed
