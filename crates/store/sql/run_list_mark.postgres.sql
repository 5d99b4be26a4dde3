-- Differs: a page of each value, joined sideways; SQLite has no LATERAL. Each mark looks its run up by itself (OFFSET
-- 0): a merge of both would walk all runs there are for a mark with few.
SELECT {run_columns}
  FROM unnest($15::text[]) AS v(value)
 CROSS JOIN LATERAL (
       SELECT r.* FROM {ops}.run_marks q
        CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = q.run_id OFFSET 0) r
        WHERE q.kind = $16 AND q.value = v.value AND q.run_id >= $1 AND q.run_id < $2 AND {run_filter}
        ORDER BY q.run_id DESC LIMIT $3) AS r
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 ORDER BY r.run_id DESC LIMIT $3
