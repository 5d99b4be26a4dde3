-- The newest first; a page begins after the one that the page before ended with.
SELECT feed, supplier_stone_id, run_id, partition_id, stage, reason, payload, times, first_at, last_at
  FROM {ops}.rejected_rows
 WHERE ($1 IS NULL OR feed = $1)
   AND ($3 IS NULL OR feed IN (SELECT f.feed FROM {ops}.feeds f WHERE f.project_id = $3))
   AND ($4 IS NULL OR last_at < $4 OR (last_at = $4 AND (feed, supplier_stone_id) > ($5, $6)))
 ORDER BY last_at DESC, feed, supplier_stone_id LIMIT $2
