-- At most once in a while, however many processes see it used.
UPDATE {ops}.tokens SET last_used_at = $2
 WHERE token_id = $1 AND (last_used_at IS NULL OR last_used_at <= $3)
