-- Differs: receivers run beside each other here, and pass over each other's rows; the function is in functions/.
SELECT queue, message_id, generation, grp, state, body, run_id, trace_id, enqueued_at, visible_at, expires_at,
       locked_by, epoch, deliveries, deliveries_max, ended_at, dead_reason, last_error
  FROM {ops}.receive_messages($1, $2, $3, $4, $5, $6)
