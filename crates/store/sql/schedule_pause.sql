UPDATE {ops}.schedules SET paused_at = $2, paused_note = $3, next_fire_at = coalesce($4, next_fire_at)
 WHERE schedule_id = $1
