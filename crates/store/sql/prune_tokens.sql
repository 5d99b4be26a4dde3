DELETE FROM {ops}.tokens
 WHERE token_id IN (SELECT t.token_id FROM {ops}.tokens t WHERE t.revoked_at < $1 OR t.expires_at < $1 LIMIT $2)
