-- Differs: a page of each value is a list that belongs to it; PostgreSQL would walk the whole table to compare with it.
SELECT {run_columns}
  FROM json_each($15) v
  JOIN {ops}.runs r ON r.run_id IN (
       SELECT r.run_id FROM {ops}.runs r
        WHERE r.env_id = v.value AND {run_filter}
        ORDER BY r.run_id DESC LIMIT $3)
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 ORDER BY r.run_id DESC LIMIT $3
