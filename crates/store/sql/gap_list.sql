SELECT gap_id, feed, price_from, price_to, updated_from, updated_to, left_by, reason, created_at, closed_by, closed_at
  FROM {ops}.feed_gaps WHERE ($1 IS NULL OR feed = $1) AND ($2 OR closed_at IS NULL) ORDER BY gap_id
