SELECT schedule_id, fire_at, decision, run_id FROM {ops}.schedule_fires
 WHERE schedule_id = $1 ORDER BY fire_at DESC LIMIT $2
