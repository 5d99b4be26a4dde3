-- Differs: the order of the tables is said (CROSS JOIN), and that names are not what graphs are found by (+): both of
-- them PostgreSQL decides by what it has counted. More names begin so than are looked up one by one: graphs and syncs
-- are read by age. The lane says where such names are: what it leaves out is not read.
SELECT {run_columns}
  FROM {ops}.runs r
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE r.run_id IN (
       SELECT a.run_id FROM (
              SELECT g.run_id FROM {ops}.graphs g CROSS JOIN {ops}.runs r ON r.run_id = g.run_id
               WHERE ($7 IS NULL OR $7 = 'graph') AND g.run_id >= $1 AND g.run_id < $2
                 AND +g.name >= $13 AND +g.name < $14 AND {run_filter}
               ORDER BY g.run_id DESC LIMIT $3) a
       UNION ALL
       SELECT b.run_id FROM (
              SELECT q.run_id FROM {ops}.run_marks q CROSS JOIN {ops}.runs r ON r.run_id = q.run_id
               WHERE ($7 IS NULL OR $7 = 'sync') AND q.kind = 'lane' AND q.value = 'sync'
                 AND q.run_id >= $1 AND q.run_id < $2 AND {run_filter}
               ORDER BY q.run_id DESC LIMIT $3) b)
 ORDER BY r.run_id DESC LIMIT $3
