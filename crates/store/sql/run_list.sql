-- The youngest first: ids sort by age, so the primary key gives the order and the page.
SELECT {run_columns}
  FROM {ops}.runs r JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE {run_filter}
 ORDER BY r.run_id DESC LIMIT $3
