UPDATE {ops}.tasks SET log_bytes = log_bytes + $2 WHERE task_id = $1
