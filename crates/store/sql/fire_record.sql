INSERT INTO {ops}.schedule_fires (schedule_id, fire_at, decision, run_id, decided_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (schedule_id, fire_at) DO NOTHING
