-- Differs: an interval is not a number.
SELECT status, avg(extract(epoch FROM finished_at - started_at))::float8 AS mean_secs, count(*) AS runs
  FROM {ops}.runs WHERE run_id > $1 AND finished_at IS NOT NULL AND started_at IS NOT NULL
   AND (CAST($2 AS text) IS NULL OR project_id = $2)
 GROUP BY status ORDER BY status
