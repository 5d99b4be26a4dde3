SELECT message, created_at FROM {ops}.run_events WHERE run_id = $1 AND kind = 'log' ORDER BY seq DESC LIMIT 1
