INSERT INTO {ops}.hooks AS h (hook, project_id, kind, secret_env, rules, paused_at, created_at)
VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, {now}))
ON CONFLICT (hook) DO UPDATE SET kind = excluded.kind, secret_env = excluded.secret_env, rules = excluded.rules,
    paused_at = excluded.paused_at
 WHERE h.project_id = excluded.project_id
