SELECT {run_columns}
  FROM {ops}.runs r JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE r.concurrency_key = $8 AND r.lane = 'sync' AND {run_filter}
 ORDER BY r.run_id DESC LIMIT $3
