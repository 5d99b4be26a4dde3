INSERT INTO {ops}.feeds (feed, project_id, kind, endpoint, username, password_env, rate, settings, copy_url, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, {now}))
ON CONFLICT (feed) DO UPDATE SET endpoint = excluded.endpoint, username = excluded.username,
    password_env = excluded.password_env, rate = excluded.rate, settings = excluded.settings,
    copy_url = excluded.copy_url
 WHERE feeds.project_id = excluded.project_id AND feeds.kind = excluded.kind
