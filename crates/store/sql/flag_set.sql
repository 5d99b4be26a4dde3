INSERT INTO {ops}.flags (flag, scope, note, since, until_at, set_by) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (flag, scope) DO UPDATE SET note = excluded.note, until_at = excluded.until_at, set_by = excluded.set_by
