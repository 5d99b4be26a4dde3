UPDATE {ops}.schedules
   SET next_fire_at = $2, last_fire_at = coalesce($3, last_fire_at), last_run_id = coalesce($4, last_run_id)
 WHERE schedule_id = $1
