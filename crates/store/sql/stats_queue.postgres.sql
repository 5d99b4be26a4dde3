-- Differs: an interval is not a number, and infinite times have no difference.
SELECT count(*) AS queued, count(*) FILTER (WHERE gate = 'open') AS ready,
       (extract(epoch FROM $1)
        - extract(epoch FROM min(ready_at) FILTER (WHERE gate = 'open' AND isfinite(ready_at))))::float8 AS oldest_secs
  FROM {ops}.runs WHERE gate IS NOT NULL AND (CAST($2 AS text) IS NULL OR project_id = $2)
