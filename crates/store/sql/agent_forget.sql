UPDATE {ops}.agents SET forgotten_at = coalesce($2, {now}) WHERE agent_id = $1 AND forgotten_at IS NULL
