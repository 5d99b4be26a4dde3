-- What waits, the oldest first: all of it is found by the indexes of what waits, and then sorted.
WITH waiting AS MATERIALIZED (
    SELECT o.run_id FROM {ops}.runs o WHERE o.gate = 'open'
    UNION ALL SELECT k.run_id FROM {ops}.runs k WHERE k.gate = 'key'
    UNION ALL SELECT t.run_id FROM {ops}.runs t WHERE t.gate = 'time')
SELECT {run_columns}
  FROM waiting w JOIN {ops}.runs r ON r.run_id = w.run_id JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE w.run_id > $1 AND (CAST($2 AS text) IS NULL OR r.project_id = $2)
 ORDER BY w.run_id LIMIT $3
