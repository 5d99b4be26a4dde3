SELECT t.token_id, t.name, t.role, t.project_id, t.created_at, t.created_by, t.expires_at, t.revoked_at,
       t.revoked_by, t.last_used_at, s.hash, s.expires_at AS session_ends_at, s.last_used_at AS session_used_at
  FROM {ops}.sessions s JOIN {ops}.tokens t ON t.token_id = s.token_id
 WHERE s.hash = $1
