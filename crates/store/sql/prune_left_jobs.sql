-- The oldest run that is gone and whose jobs are not: the walk of prune_left.sql, over jobs.
WITH RECURSIVE bound (run_id) AS (
    SELECT coalesce((SELECT min(r.run_id) FROM {ops}.runs r WHERE r.run_id < $1 AND r.finished_at < $2), $1)
), walk (run_id) AS (
    SELECT (SELECT min(j.run_id) FROM {ops}.jobs j WHERE j.run_id < (SELECT b.run_id FROM bound b))
    UNION ALL
    SELECT (SELECT min(j.run_id) FROM {ops}.jobs j
             WHERE j.run_id > w.run_id AND j.run_id < (SELECT b.run_id FROM bound b))
      FROM walk w
     WHERE w.run_id IS NOT NULL AND EXISTS (SELECT 1 FROM {ops}.runs r WHERE r.run_id = w.run_id)
)
SELECT w.run_id AS value FROM walk w
 WHERE w.run_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {ops}.runs r WHERE r.run_id = w.run_id)
 LIMIT 1
