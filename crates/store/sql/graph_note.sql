-- The caller has locked the run, so that the number is free. The id is made of it by the database.
INSERT INTO {ops}.run_events (run_id, seq, kind, level, message, created_at)
SELECT $1, coalesce(max(e.seq), 0) + 1, 'request', $2, $3, coalesce($4, {now})
  FROM {ops}.run_events e WHERE e.run_id = $1
