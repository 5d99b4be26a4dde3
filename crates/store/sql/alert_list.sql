SELECT alert_id, kind, subject, project_id, feed, run_id, message, created_at, last_at, times, resolved_at
  FROM {ops}.alerts
 WHERE (CAST($1 AS text) IS NULL OR project_id = $1)
   AND (CAST($2 AS text) IS NULL OR kind = $2)
   AND ($3 OR resolved_at IS NULL)
   AND (CAST($4 AS bigint) IS NULL OR alert_id < $4)
 ORDER BY alert_id DESC LIMIT $5
