-- How many runs are queued, counted up to a bound for each gate.
SELECT count(*) AS value FROM (
    SELECT 1 AS one FROM (SELECT o.run_id FROM {ops}.runs o WHERE o.gate = 'open' LIMIT $1) opened
    UNION ALL SELECT 1 FROM (SELECT k.run_id FROM {ops}.runs k WHERE k.gate = 'key' LIMIT $1) keyed
    UNION ALL SELECT 1 FROM (SELECT t.run_id FROM {ops}.runs t WHERE t.gate = 'time' LIMIT $1) timed) queued
