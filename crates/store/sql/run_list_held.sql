-- Held runs are as few as workers can hold: all of them are found by the index of what is held, and then sorted.
WITH held AS MATERIALIZED (
    SELECT h.run_id FROM {ops}.runs h
     WHERE h.claimed_by >= '' AND h.finished_at IS NULL AND h.status IN ('claimed', 'running'))
SELECT {run_columns}
  FROM held h JOIN {ops}.runs r ON r.run_id = h.run_id JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE {run_filter}
 ORDER BY r.run_id DESC LIMIT $3
