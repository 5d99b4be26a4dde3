SELECT max(due_at) AS last_at FROM {ops}.deliveries WHERE target = $1 AND kind = $2 AND grp = $3
