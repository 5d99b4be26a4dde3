UPDATE {ops}.workers SET draining = $2 WHERE worker_id = $1 AND ended_at IS NULL
