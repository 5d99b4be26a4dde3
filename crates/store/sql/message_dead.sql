-- The oldest first; a page begins after the one that the page before ended with.
SELECT queue, message_id, generation, grp, state, body, run_id, trace_id, enqueued_at, visible_at, expires_at,
       locked_by, epoch, deliveries, ended_at, dead_reason, last_error
  FROM {ops}.messages
 WHERE queue = $1 AND state = 'dead' AND (ended_at, message_id, generation) > ($2, $3, $4)
 ORDER BY ended_at, message_id, generation LIMIT $5
