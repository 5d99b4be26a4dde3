-- Differs: a page of each value, joined sideways; SQLite has no LATERAL.
SELECT {run_columns}
  FROM unnest($15::text[]) AS v(value)
 CROSS JOIN LATERAL (
       SELECT r.run_id FROM {ops}.runs r
        WHERE r.git_sha = v.value {binary} AND {run_filter}
        ORDER BY r.run_id DESC LIMIT $3) AS f
  JOIN {ops}.runs r ON r.run_id = f.run_id
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 ORDER BY r.run_id DESC LIMIT $3
