SELECT queue, message_id, generation, grp, state, body, run_id, trace_id, enqueued_at, visible_at, expires_at,
       locked_by, epoch, deliveries, ended_at, dead_reason, last_error
  FROM {ops}.messages
 WHERE queue = $1 AND message_id = $2 AND generation = $3
