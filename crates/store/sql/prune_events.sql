-- Events are numbered without gaps: at most $2 of them go, the oldest first.
DELETE FROM {ops}.run_events
 WHERE run_id = $1
   AND seq < (SELECT min(e.seq) FROM {ops}.run_events e WHERE e.run_id = $1) + $2
