-- Differs: another scheduler may hold the row; take the next one. Lists are arrays.
SELECT schedule_id AS value
  FROM {ops}.schedules
 WHERE paused_at IS NULL AND next_fire_at <= $1 AND schedule_id <> ALL ($2)
 ORDER BY next_fire_at LIMIT 1 FOR UPDATE SKIP LOCKED
