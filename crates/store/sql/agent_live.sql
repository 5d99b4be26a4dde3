-- The agents that matter to a controller: those who were heard lately, and those who still have tasks.
SELECT agent_id, name, host, labels, capacity, version, project_id, token_id, boot_id, draining,
       registered_at, seen_at, left_at,
       forgotten_at, secret_hash
  FROM {ops}.agents a
 WHERE (a.forgotten_at IS NULL AND a.seen_at > $1)
    OR a.agent_id IN (SELECT t.agent_id FROM {ops}.tasks t WHERE t.active)
