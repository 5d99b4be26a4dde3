-- While few runs are queued, all of them are found by the indexes of what waits, and then sorted.
WITH waiting AS MATERIALIZED (
    SELECT o.run_id FROM {ops}.runs o WHERE o.gate = 'open'
    UNION ALL SELECT k.run_id FROM {ops}.runs k WHERE k.gate = 'key'
    UNION ALL SELECT t.run_id FROM {ops}.runs t WHERE t.gate = 'time')
SELECT {run_columns}
  FROM waiting w JOIN {ops}.runs r ON r.run_id = w.run_id JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE {run_filter}
 ORDER BY r.run_id DESC LIMIT $3
