SELECT token_id, name, role, project_id, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at,
       hash
  FROM {ops}.tokens WHERE hash = $1
