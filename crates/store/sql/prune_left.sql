-- The oldest run that is gone and whose events are not. The walk goes from run to run, and not from event to event.
-- What is older than the next run to go and is still there lives, or ended lately: few do.
WITH RECURSIVE bound (run_id) AS (
    SELECT coalesce((SELECT min(r.run_id) FROM {ops}.runs r WHERE r.run_id < $1 AND r.finished_at < $2), $1)
), walk (run_id) AS (
    SELECT (SELECT min(e.run_id) FROM {ops}.run_events e WHERE e.run_id < (SELECT b.run_id FROM bound b))
    UNION ALL
    SELECT (SELECT min(e.run_id) FROM {ops}.run_events e
             WHERE e.run_id > w.run_id AND e.run_id < (SELECT b.run_id FROM bound b))
      FROM walk w
     WHERE w.run_id IS NOT NULL AND EXISTS (SELECT 1 FROM {ops}.runs r WHERE r.run_id = w.run_id)
)
SELECT w.run_id AS value FROM walk w
 WHERE w.run_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {ops}.runs r WHERE r.run_id = w.run_id)
 LIMIT 1
