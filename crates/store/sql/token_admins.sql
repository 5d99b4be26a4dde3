-- Tokens that let somebody in who may do everything, but for the one that is about to be made.
SELECT count(*) AS value FROM {ops}.tokens
 WHERE role = 'admin' AND project_id IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)
   AND token_id <> $2
