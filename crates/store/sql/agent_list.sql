SELECT agent_id, name, host, labels, capacity, version, project_id, token_id, boot_id, draining,
       registered_at, seen_at, left_at,
       forgotten_at, secret_hash
  FROM {ops}.agents
 WHERE forgotten_at IS NULL AND ($1 IS NULL OR project_id = $1) ORDER BY name, agent_id LIMIT $2
