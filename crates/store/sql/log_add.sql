INSERT INTO {ops}.task_logs (task_id, seq, lines, bytes, at) VALUES ($1, $2, $3, $4, coalesce($5, {now}))
ON CONFLICT DO NOTHING
