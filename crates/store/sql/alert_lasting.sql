SELECT alert_id, kind, subject, project_id, feed, run_id, message, created_at, last_at, times, resolved_at
  FROM {ops}.alerts WHERE kind = $1 AND resolved_at IS NULL AND subject <> '' ORDER BY subject LIMIT $2
