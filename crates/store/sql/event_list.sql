SELECT event_id, run_id, seq, kind, level, message, payload, event_key, created_at
  FROM {ops}.run_events
 WHERE run_id = $1 AND seq > $2
 ORDER BY seq
 LIMIT $3
