-- The latest first.
SELECT audit_id, at, who, token_id, role, action, subject, project_id, detail, source
  FROM {ops}.audit
 WHERE ($1 IS NULL OR project_id = $1)
   AND ($2 IS NULL OR audit_id < $2)
 ORDER BY audit_id DESC
 LIMIT $3
