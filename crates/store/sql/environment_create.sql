INSERT INTO {ops}.environments (env_id, project_id, env_type, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (project_id, env_type) DO NOTHING
