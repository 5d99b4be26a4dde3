SELECT task_id, kind, stage FROM {ops}.tasks WHERE agent_id = $1 AND active AND result IS NULL
