-- A new generation of a dead letter, with all its deliveries before it. Where the next generation exists already,
-- somebody has replayed or retried it: nothing is made.
INSERT INTO {ops}.messages (queue, message_id, generation, grp, body, run_id, trace_id, enqueued_at, ready_at,
                            visible_at, expires_at)
SELECT m.queue, m.message_id, m.generation + 1, m.grp, m.body, m.run_id, m.trace_id, $3, $3, $3, $4
  FROM {ops}.messages m
 WHERE m.queue = $1 AND m.state = 'dead' AND (CAST($2 AS text) IS NULL OR m.message_id = $2)
 ORDER BY m.ended_at, m.message_id, m.generation
    ON CONFLICT (queue, message_id, generation) DO NOTHING
