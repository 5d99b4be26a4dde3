-- Differs: there is one writer at a time, so what has ended is a number; written as PostgreSQL writes a snapshot.
SELECT (coalesce(max(seq), 0) + 1) || ':' || (coalesce(max(seq), 0) + 1) || ':' AS value
  FROM sqlite_sequence
 WHERE name = 'run_events'
