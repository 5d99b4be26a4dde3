-- Differs: SQLite has no arrays. What had not ended by the first point ($1, but for $2, and so nothing below $3), and
-- has by the second ($4, but for $5).
SELECT e.event_id, e.run_id, e.seq, e.kind, e.level, e.message, e.payload, e.event_key, e.created_at,
       coalesce(r.project_id, '') AS project_id
  FROM {ops}.run_events e
  LEFT JOIN {ops}.runs r ON r.run_id = e.run_id
 WHERE e.xact >= $3
   AND (e.xact >= $1 OR e.xact = ANY ($2))
   AND e.xact < $4
   AND e.xact <> ALL ($5)
   AND (e.run_id, e.seq) > ($6, $7)
   AND ($8::text IS NULL OR r.project_id = $8)
 ORDER BY e.run_id, e.seq
 LIMIT $9
