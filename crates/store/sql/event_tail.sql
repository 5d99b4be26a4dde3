SELECT event_id, run_id, seq, kind, level, message, payload, event_key, created_at
  FROM {ops}.run_events
 WHERE run_id = $1 AND seq < $2 AND seq >= $3
   AND CASE level WHEN 'debug' THEN 0 WHEN 'info' THEN 1 WHEN 'warn' THEN 2 ELSE 3 END >= $4
   AND (CAST($5 AS text) IS NULL OR lower(message) LIKE $5 ESCAPE '\')
 ORDER BY seq DESC
 LIMIT $6
