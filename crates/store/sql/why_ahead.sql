-- Bounded: nobody reads more than the first thousand.
SELECT count(*) AS value FROM (
    SELECT 1 FROM {ops}.runs a, {ops}.runs r
     WHERE r.run_id = $1 AND a.gate = 'open' AND a.run_id <> r.run_id
       AND (a.priority > r.priority OR (a.priority = r.priority AND a.ready_at < r.ready_at))
     LIMIT 1000) ahead
