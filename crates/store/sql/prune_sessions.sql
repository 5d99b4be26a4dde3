DELETE FROM {ops}.sessions
 WHERE hash IN (SELECT s.hash FROM {ops}.sessions s WHERE s.expires_at <= $1 ORDER BY s.expires_at LIMIT $2)
