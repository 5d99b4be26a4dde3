-- Differs: an interval is not a number, and infinite times have no difference.
SELECT status, avg(extract(epoch FROM finished_at) - extract(epoch FROM started_at))::float8 AS mean_secs,
       count(*) AS runs
  FROM {ops}.runs WHERE run_id > $1 AND isfinite(finished_at) AND isfinite(started_at)
   AND (CAST($2 AS text) IS NULL OR project_id = $2)
 GROUP BY status ORDER BY status
