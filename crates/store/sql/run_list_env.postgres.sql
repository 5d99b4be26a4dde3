-- Differs: a page of each value, joined sideways; SQLite has no LATERAL. The first event of a run says where it is
-- from: it never changes, where a run is entered in each of its indexes anew by every claim and finish. Each event
-- looks its run up by itself (OFFSET 0): a merge of both would walk all runs there are for an environment with few. So
-- would the primary key of events, which gives the order of ids as well, and which looks as good or not with each
-- ANALYZE: place and id are one range here, which only the index of both can answer.
SELECT {run_columns}
  FROM unnest($15::text[]) AS v(value)
 CROSS JOIN LATERAL (
       SELECT r.* FROM {ops}.run_events q
        CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = q.run_id OFFSET 0) r
        WHERE q.env_id IS NOT NULL AND (q.env_id, q.run_id) >= (v.value, $1) AND (q.env_id, q.run_id) < (v.value, $2)
          AND q.seq = 1 AND {run_filter}
        ORDER BY q.env_id DESC, q.run_id DESC LIMIT $3) AS r
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 ORDER BY r.run_id DESC LIMIT $3
