UPDATE {ops}.agents SET seen_at = coalesce($2, {now}), left_at = NULL WHERE agent_id = $1
