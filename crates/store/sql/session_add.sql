INSERT INTO {ops}.sessions (hash, token_id, created_at, expires_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (hash) DO UPDATE SET expires_at = excluded.expires_at
