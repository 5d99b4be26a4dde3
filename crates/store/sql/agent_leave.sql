UPDATE {ops}.agents SET left_at = coalesce($2, {now}) WHERE agent_id = $1
