INSERT INTO {ops}.pools (name, size) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET size = excluded.size
