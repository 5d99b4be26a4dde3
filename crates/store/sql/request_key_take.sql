-- Whoever comes second waits for the first to commit, and then finds its answer.
INSERT INTO {ops}.request_keys (scope, route, key, body_hash, answer, created_at)
VALUES ($1, $2, $3, $4, $5, coalesce($6, {now}))
ON CONFLICT (scope, route, key) DO NOTHING
