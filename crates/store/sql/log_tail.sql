SELECT seq, lines FROM {ops}.task_logs WHERE task_id = $1 ORDER BY seq DESC LIMIT $2
