-- Differs: each graph and mark looks its run up by itself (OFFSET 0), or a merge would walk all runs there are; SQLite
-- has no LATERAL, and merges nothing. More names begin so than are looked up one by one: graphs and syncs are read by
-- age. The lane says where such names are: what it leaves out is not read.
SELECT {run_columns}
  FROM (SELECT p.run_id
          FROM ((SELECT g.run_id FROM {ops}.graphs g
                  CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = g.run_id OFFSET 0) r
                  WHERE ($7 IS NULL OR $7 = 'graph') AND g.run_id >= $1 AND g.run_id < $2
                    AND g.name >= $13 {binary} AND g.name < $14 {binary} AND {run_filter}
                  ORDER BY g.run_id DESC LIMIT $3)
                 UNION ALL
                (SELECT q.run_id FROM {ops}.run_marks q
                  CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = q.run_id OFFSET 0) r
                  WHERE ($7 IS NULL OR $7 = 'sync') AND q.kind = 'lane' AND q.value = 'sync'
                    AND q.run_id >= $1 AND q.run_id < $2 AND {run_filter}
                  ORDER BY q.run_id DESC LIMIT $3)) AS p
         ORDER BY p.run_id DESC LIMIT $3) AS f
  JOIN {ops}.runs r ON r.run_id = f.run_id
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 ORDER BY r.run_id DESC LIMIT $3
