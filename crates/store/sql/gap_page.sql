-- The oldest first; a page begins after the one that the page before ended with.
SELECT gap_id, feed, price_from, price_to, updated_from, updated_to, left_by, reason, created_at, closed_by, closed_at
  FROM {ops}.feed_gaps
 WHERE ($1 IS NULL OR feed = $1) AND ($2 OR closed_at IS NULL)
   AND ($3 IS NULL OR feed IN (SELECT f.feed FROM {ops}.feeds f WHERE f.project_id = $3))
   AND gap_id > $4
 ORDER BY gap_id LIMIT $5
