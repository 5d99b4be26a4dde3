-- Events of runs.

-- name: event_list
SELECT event_id, run_id, seq, kind, level, message, payload, event_key, created_at
  FROM {ops}.run_events
 WHERE run_id = $1 AND seq > $2
 ORDER BY seq
 LIMIT $3

-- name: event_tail
SELECT event_id, run_id, seq, kind, level, message, payload, event_key, created_at
  FROM {ops}.run_events
 WHERE run_id = $1 AND seq < $2 AND seq >= $3
   AND CASE level WHEN 'debug' THEN 0 WHEN 'info' THEN 1 WHEN 'warn' THEN 2 ELSE 3 END >= $4
   AND (CAST($5 AS text) IS NULL OR lower(message) LIKE $5 ESCAPE '\')
 ORDER BY seq DESC
 LIMIT $6

-- name: event_last
SELECT CAST(coalesce(max(seq), 0) AS bigint) AS value FROM {ops}.run_events WHERE run_id = $1

-- name: live_point (postgres)
-- The current position in the stream of live events.
-- Differs: on PostgreSQL transactions overlap, and only a snapshot tells which of them have ended. On SQLite the row
-- number tells it; it is written in the form of a snapshot.
SELECT pg_current_snapshot()::text AS value

-- name: live_point (sqlite)
SELECT (coalesce(max(seq), 0) + 1) || ':' || (coalesce(max(seq), 0) + 1) || ':' AS value
  FROM sqlite_sequence
 WHERE name = 'run_events'

-- name: live_page (postgres)
-- Events of transactions that were open at the first position ($1; those in $2, hence none below $3) and have ended at
-- the second ($4, without those in $5).
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
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

-- name: live_page (sqlite)
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
