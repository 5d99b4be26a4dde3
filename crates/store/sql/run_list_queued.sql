-- While few runs are queued, all of them are found by the indexes of what waits, and then sorted.
WITH waiting AS MATERIALIZED ({waiting})
SELECT {run_columns}
  FROM waiting w JOIN {ops}.runs r ON r.run_id = w.run_id JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE {run_filter}
 ORDER BY r.run_id DESC LIMIT $3
