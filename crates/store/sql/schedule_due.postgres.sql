-- Differs: another scheduler may hold the row; take the next one.
SELECT schedule_id, project_id, cron, time_zone, request, missed, overlap, paused_at, paused_note, next_fire_at,
       last_fire_at, last_run_id, created_at
  FROM {ops}.schedules
 WHERE paused_at IS NULL AND next_fire_at <= $1
 ORDER BY next_fire_at LIMIT 1 FOR UPDATE SKIP LOCKED
