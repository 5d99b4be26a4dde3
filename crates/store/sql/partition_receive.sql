UPDATE {sync}.partition_progress SET state = 'in_progress', updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND partition_id = $2 AND state = 'pending'
