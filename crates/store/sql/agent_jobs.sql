SELECT DISTINCT job_id AS value FROM {ops}.tasks WHERE agent_id = $1 AND active ORDER BY job_id
