UPDATE {sync}.run_metadata
   SET state = 'workers_running', ops_run_id = $2, error = NULL, generation = generation + 1, forced = false,
       advance = false, updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND state = 'failed'
RETURNING CAST(generation AS bigint) AS value
