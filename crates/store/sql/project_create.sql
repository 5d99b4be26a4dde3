INSERT INTO {ops}.projects (project_id, name, created_at, updated_at) VALUES ($1, $1, $2, $2)
ON CONFLICT (project_id) DO NOTHING
