-- Whose token it is stays as it is: that is another decision.
INSERT INTO {ops}.agents (agent_id, name, host, labels, capacity, version, project_id, token_id, boot_id,
                          registered_at, seen_at, secret_hash)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, {now}), coalesce($10, {now}), $11)
ON CONFLICT (agent_id) DO UPDATE SET name = excluded.name, host = excluded.host, labels = excluded.labels,
       capacity = excluded.capacity, version = excluded.version, project_id = excluded.project_id,
       boot_id = excluded.boot_id, seen_at = excluded.seen_at, left_at = NULL, forgotten_at = NULL,
       secret_hash = coalesce(agents.secret_hash, excluded.secret_hash)
