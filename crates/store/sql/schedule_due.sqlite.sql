-- Differs: there are no row locks to skip; this is the only writer.
SELECT schedule_id, project_id, cron, time_zone, request, missed, overlap, paused_at, paused_note, next_fire_at,
       last_fire_at, last_run_id, created_at
  FROM {ops}.schedules
 WHERE paused_at IS NULL AND next_fire_at <= $1
 ORDER BY next_fire_at LIMIT 1
