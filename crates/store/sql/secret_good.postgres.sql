-- Differs: a list is an array.
SELECT t.hash AS value FROM {ops}.tokens t
 WHERE t.hash = ANY ($1) AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $2)
UNION ALL
SELECT s.hash FROM {ops}.sessions s JOIN {ops}.tokens t ON t.token_id = s.token_id
 WHERE s.hash = ANY ($1) AND s.expires_at > $2
   AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $2)
