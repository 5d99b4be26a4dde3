-- Differs: there are no row locks to skip; this is the only writer. Lists are JSON.
SELECT schedule_id AS value
  FROM {ops}.schedules
 WHERE paused_at IS NULL AND next_fire_at <= $1 AND schedule_id NOT IN (SELECT j.value FROM json_each($2) j)
 ORDER BY next_fire_at LIMIT 1
