-- A failed partition goes on where it stopped, or from its beginning where somebody asked for that.
UPDATE {sync}.partition_progress
   SET state = 'pending', failed = false, error = NULL, faults = 0, ended_at = NULL, restart = false,
       next_offset = CASE WHEN restart THEN 0 ELSE next_offset END,
       consolidated_to = CASE WHEN restart THEN 0 ELSE consolidated_to END,
       consolidated = CASE WHEN restart THEN 0 ELSE consolidated END,
       refused = CASE WHEN restart THEN 0 ELSE refused END,
       shift = CASE WHEN restart THEN 0 ELSE shift END, pass = CASE WHEN restart THEN 1 ELSE pass END,
       updated_at = coalesce($2, {now})
 WHERE run_id = $1 AND failed
