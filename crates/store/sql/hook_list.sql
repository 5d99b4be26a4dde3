SELECT hook, project_id, kind, secret_env, rules, paused_at, created_at
  FROM {ops}.hooks
 WHERE (CAST($1 AS text) IS NULL OR hook = $1) AND (CAST($2 AS text) IS NULL OR project_id = $2)
 ORDER BY hook
