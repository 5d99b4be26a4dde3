-- In the commit that covers them: those of which every partition was completed in this sync. The partitions of a full
-- sync are not made for gaps, but cover all prices: there, no partition that touches the gap may be unfinished.
UPDATE {ops}.feed_gaps SET closed_by = $1, closed_at = coalesce($2, {now})
 WHERE closed_at IS NULL AND left_by <> $1
   AND (gap_id IN (SELECT p.gap_id FROM {sync}.partition_progress p WHERE p.run_id = $1 AND p.gap_id IS NOT NULL)
        OR feed IN (SELECT m.feed FROM {sync}.run_metadata m WHERE m.run_id = $1 AND m.run_type = 'full'))
   AND NOT EXISTS (SELECT 1 FROM {sync}.partition_progress p
                    WHERE p.run_id = $1 AND NOT p.completed
                      AND p.price_from < feed_gaps.price_to AND feed_gaps.price_from < p.price_to)
