DELETE FROM {ops}.agents
 WHERE seen_at < $1 AND NOT EXISTS (SELECT 1 FROM {ops}.tasks t WHERE t.agent_id = agents.agent_id AND t.active)
