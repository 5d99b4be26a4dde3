-- What workers hold, of every queue: a lock that has ended holds nothing.
SELECT queue, message_id, generation, grp, state, body, run_id, trace_id, enqueued_at, visible_at, expires_at,
       locked_by, epoch, deliveries, ended_at, dead_reason, last_error
  FROM {ops}.messages
 WHERE state = 'live' AND locked_by IS NOT NULL AND visible_at > $1
 ORDER BY locked_by, queue, message_id, generation LIMIT $2
