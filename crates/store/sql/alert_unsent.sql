SELECT alert_id, kind, subject, project_id, feed, run_id, message, created_at, last_at, times, resolved_at
  FROM {ops}.alerts WHERE sent_at IS NULL AND alert_id > $2 ORDER BY alert_id LIMIT $1
