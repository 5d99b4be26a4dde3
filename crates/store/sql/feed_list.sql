SELECT feed, project_id, kind, endpoint, username, password_env, rate, settings, last_updated_at, last_run_id,
       last_run_completed_at, copy_url, copied_updated_at, copy_error, circuit, circuit_rev, circuit_reason,
       created_at
  FROM {ops}.feeds WHERE $1 IS NULL OR feed = $1 ORDER BY feed
