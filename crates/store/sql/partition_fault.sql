UPDATE {sync}.partition_progress
   SET faults = faults + 1, error = $4, updated_at = coalesce($5, {now})
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $3 AND NOT completed AND NOT failed
RETURNING CAST(faults AS bigint) AS value
