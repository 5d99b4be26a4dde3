SELECT seq, lines FROM {ops}.task_logs WHERE task_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
