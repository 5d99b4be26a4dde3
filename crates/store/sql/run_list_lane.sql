SELECT {run_columns}
  FROM {ops}.runs r JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE r.lane = $7 AND r.lane <> 'ops' AND {run_filter}
 ORDER BY r.run_id DESC LIMIT $3
