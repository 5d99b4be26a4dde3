SELECT project_id, env_type FROM {ops}.environments ORDER BY project_id, env_type
