-- Differs: a plain join; SQLite looks each run up by its key, and has no LATERAL.
-- Runs that failed or were cancelled, from the list that triggers keep of them.
SELECT {run_columns}
  FROM {ops}.run_ends n
  JOIN {ops}.runs r ON r.run_id = n.run_id
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE n.status = $6 AND n.run_id >= $1 AND n.run_id < $2 AND {run_filter}
 ORDER BY n.run_id DESC LIMIT $3
