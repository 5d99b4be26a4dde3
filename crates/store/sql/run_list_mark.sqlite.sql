-- Differs: a page of each value is a list that belongs to it; PostgreSQL would walk the whole table to compare with it.
SELECT {run_columns}
  FROM json_each($15) v
  JOIN {ops}.runs r ON r.run_id IN (
       SELECT q.run_id FROM {ops}.run_marks q CROSS JOIN {ops}.runs r ON r.run_id = q.run_id
        WHERE q.kind = $16 AND q.value = v.value AND q.run_id >= $1 AND q.run_id < $2 AND {run_filter}
        ORDER BY q.run_id DESC LIMIT $3)
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 ORDER BY r.run_id DESC LIMIT $3
