SELECT task_id AS value FROM {ops}.tasks WHERE agent_id = $1 AND active AND result IS NULL
