-- The full sync before this one that was completed, to ask whether it missed a stone too.
SELECT CAST(m.run_id AS text) AS value FROM {sync}.run_metadata m
 WHERE m.feed = $1 AND m.run_type = 'full' AND m.state = 'completed' AND m.run_id <> $2
 ORDER BY m.started_at DESC LIMIT 1
