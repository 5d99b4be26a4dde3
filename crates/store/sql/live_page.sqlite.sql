-- Differs: SQLite has no arrays, and lists are JSON. What had not ended by the first point ($1, but for $2, and so
-- nothing below $3), and has by the second ($4, but for $5).
SELECT e.event_id, e.run_id, e.seq, e.kind, e.level, e.message, e.payload, e.event_key, e.created_at,
       coalesce(r.project_id, '') AS project_id
  FROM run_events e
  LEFT JOIN runs r ON r.run_id = e.run_id
 WHERE e.xact >= $3
   AND (e.xact >= $1 OR e.xact IN (SELECT value FROM json_each($2)))
   AND e.xact < $4
   AND e.xact NOT IN (SELECT value FROM json_each($5))
   AND (e.run_id, e.seq) > ($6, $7)
   AND ($8 IS NULL OR r.project_id = $8)
 ORDER BY e.run_id, e.seq
 LIMIT $9
