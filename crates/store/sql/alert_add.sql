INSERT INTO {ops}.alerts (kind, feed, run_id, message, created_at) VALUES ($1, $2, $3, $4, coalesce($5, {now}))
