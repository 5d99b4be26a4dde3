INSERT INTO {ops}.job_changes AS c (subject, version) VALUES ($1, 1)
ON CONFLICT (subject) DO UPDATE SET version = c.version + 1
