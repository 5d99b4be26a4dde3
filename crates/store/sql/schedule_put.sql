INSERT INTO {ops}.schedules (schedule_id, project_id, cron, time_zone, request, missed, overlap, next_fire_at,
                             created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (schedule_id) DO UPDATE SET project_id = excluded.project_id, cron = excluded.cron,
    time_zone = excluded.time_zone, request = excluded.request, missed = excluded.missed,
    overlap = excluded.overlap, next_fire_at = excluded.next_fire_at
