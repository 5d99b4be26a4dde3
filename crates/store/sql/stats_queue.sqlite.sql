-- Differs: times are microseconds.
SELECT count(*) AS queued, count(*) FILTER (WHERE gate = 'open') AS ready,
       ($1 - min(ready_at) FILTER (WHERE gate = 'open')) / 1000000.0 AS oldest_secs
  FROM {ops}.runs WHERE gate IS NOT NULL AND (CAST($2 AS text) IS NULL OR project_id = $2)
