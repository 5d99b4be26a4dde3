UPDATE {ops}.agents SET draining = $2 WHERE agent_id = $1
