-- Differs: a page of each name, joined sideways; SQLite has no LATERAL. A graph's name is in its own table, a
-- feed's among the marks, and each looks its run up by itself (OFFSET 0): a merge would walk all runs there are for a
-- name with few.
-- The lane says where such a name is: what it leaves out is not read.
SELECT {run_columns}
  FROM (SELECT p.run_id
          FROM unnest($15::text[]) AS v(value)
         CROSS JOIN LATERAL (
               (SELECT g.run_id FROM {ops}.graphs g
                 CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = g.run_id OFFSET 0) r
                 WHERE ($7 IS NULL OR $7 = 'graph')
                   AND g.name = v.value {binary} AND g.run_id >= $1 AND g.run_id < $2 AND {run_filter}
                 ORDER BY g.run_id DESC LIMIT $3)
                UNION ALL
               (SELECT q.run_id FROM {ops}.run_marks q
                 CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = q.run_id OFFSET 0) r
                 WHERE ($7 IS NULL OR $7 = 'sync') AND q.kind = 'feed'
                   AND q.value = 'feed:' || v.value AND q.run_id >= $1 AND q.run_id < $2 AND {run_filter}
                 ORDER BY q.run_id DESC LIMIT $3)) AS p
         ORDER BY p.run_id DESC LIMIT $3) AS f
  JOIN {ops}.runs r ON r.run_id = f.run_id
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 ORDER BY r.run_id DESC LIMIT $3
