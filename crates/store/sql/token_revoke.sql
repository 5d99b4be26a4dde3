-- Who revoked it first stays on it.
UPDATE {ops}.tokens SET revoked_at = $3, revoked_by = $4
 WHERE token_id = $1 AND ($2 IS NULL OR project_id = $2) AND revoked_at IS NULL
