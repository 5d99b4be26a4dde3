-- The youngest first: ids sort by age.
SELECT token_id, name, role, project_id, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at
  FROM {ops}.tokens
 WHERE ($1 IS NULL OR project_id = $1)
   AND ($2 IS NULL OR token_id < $2)
 ORDER BY token_id DESC
 LIMIT $3
