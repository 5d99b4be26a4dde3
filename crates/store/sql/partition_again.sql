-- Reads the list from its start once more: the offset goes on, and the shift takes all of it back.
UPDATE {sync}.partition_progress
   SET pass = pass + 1, shift = next_offset, recount = $5, updated_at = coalesce($6, {now})
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $3 AND pass = $4 AND NOT completed AND NOT failed
