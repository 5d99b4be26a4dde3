-- Differs: a page of each name is a list that belongs to it; PostgreSQL would walk the whole table to compare with it.
-- A graph's name is in its own table, a feed's among the marks. The lane says where such a name is: what it leaves out
-- is not read.
SELECT {run_columns}
  FROM json_each($15) v
  JOIN {ops}.runs r ON r.run_id IN (
       SELECT a.run_id FROM (
              SELECT g.run_id FROM {ops}.graphs g CROSS JOIN {ops}.runs r ON r.run_id = g.run_id
               WHERE ($7 IS NULL OR $7 = 'graph')
                 AND g.name = v.value AND g.run_id >= $1 AND g.run_id < $2 AND {run_filter}
               ORDER BY g.run_id DESC LIMIT $3) a
       UNION ALL
       SELECT b.run_id FROM (
              SELECT q.run_id FROM {ops}.run_marks q CROSS JOIN {ops}.runs r ON r.run_id = q.run_id
               WHERE ($7 IS NULL OR $7 = 'sync') AND q.kind = 'feed'
                 AND q.value = 'feed:' || v.value AND q.run_id >= $1 AND q.run_id < $2 AND {run_filter}
               ORDER BY q.run_id DESC LIMIT $3) b)
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 ORDER BY r.run_id DESC LIMIT $3
