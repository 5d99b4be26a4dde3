-- In the commit that covers them: those of which every partition was completed in this sync.
UPDATE {ops}.feed_gaps SET closed_by = $1, closed_at = coalesce($2, {now})
 WHERE closed_at IS NULL
   AND gap_id IN (SELECT p.gap_id FROM {sync}.partition_progress p WHERE p.run_id = $1 AND p.gap_id IS NOT NULL)
   AND gap_id NOT IN (SELECT p.gap_id FROM {sync}.partition_progress p
                       WHERE p.run_id = $1 AND p.gap_id IS NOT NULL AND NOT p.completed)
