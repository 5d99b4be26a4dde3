-- Differs: each end looks its run up by itself (OFFSET 0): a plan made for any values merges both lists, and would
-- walk all runs there are for a few that were cancelled.
-- Runs that failed or were cancelled, from the list that triggers keep of them.
SELECT {run_columns}
  FROM {ops}.run_ends n
 CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = n.run_id OFFSET 0) r
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE n.status = $6 AND n.run_id >= $1 AND n.run_id < $2 AND {run_filter}
 ORDER BY n.run_id DESC LIMIT $3
