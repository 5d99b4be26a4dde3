INSERT INTO {ops}.feed_gaps (feed, price_from, price_to, updated_from, updated_to, left_by, reason, created_at)
SELECT m.feed, p.price_from, p.price_to, p.updated_from, m.updated_to, m.run_id, coalesce(p.error, 'failed'),
       coalesce($2, {now})
  FROM {sync}.partition_progress p JOIN {sync}.run_metadata m ON m.run_id = p.run_id
 WHERE p.run_id = $1 AND p.failed
