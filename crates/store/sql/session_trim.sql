-- A token has only so many sessions: the oldest make room.
DELETE FROM {ops}.sessions
 WHERE token_id = $1
   AND hash NOT IN (SELECT s.hash FROM {ops}.sessions s WHERE s.token_id = $1 ORDER BY s.created_at DESC, s.hash
                     LIMIT $2)
