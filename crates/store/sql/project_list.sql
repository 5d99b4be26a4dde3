SELECT project_id, created_at FROM {ops}.projects ORDER BY project_id
