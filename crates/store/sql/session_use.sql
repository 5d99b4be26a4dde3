UPDATE {ops}.sessions SET last_used_at = $2
 WHERE hash = $1 AND (last_used_at IS NULL OR last_used_at <= $3)
