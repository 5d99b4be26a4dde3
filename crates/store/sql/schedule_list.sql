SELECT schedule_id, project_id, cron, time_zone, request, missed, overlap, paused_at, paused_note, next_fire_at,
       last_fire_at, last_run_id, created_at
  FROM {ops}.schedules WHERE ($1 IS NULL OR schedule_id = $1) ORDER BY schedule_id
