-- What waits, the oldest first: all of it is found by the indexes of what waits, and then sorted.
WITH waiting AS MATERIALIZED ({waiting})
SELECT {run_columns}
  FROM waiting w JOIN {ops}.runs r ON r.run_id = w.run_id JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE w.run_id > $1 AND (CAST($2 AS text) IS NULL OR r.project_id = $2)
 ORDER BY w.run_id LIMIT $3
