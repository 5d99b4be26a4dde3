-- What expired while nobody received it: a receive that meets it does the same.
UPDATE {ops}.messages
   SET state = 'dead', ended_at = $1, dead_reason = 'expired', locked_by = NULL
 WHERE state = 'live' AND expires_at <= $1 AND visible_at <= $1
   AND (queue, message_id, generation) IN (
       SELECT m.queue, m.message_id, m.generation FROM {ops}.messages m
        WHERE m.state = 'live' AND m.expires_at <= $1 AND m.visible_at <= $1 LIMIT $2)
RETURNING queue, message_id, generation, grp, state, body, run_id, trace_id, enqueued_at, visible_at, expires_at,
          locked_by, epoch, deliveries, ended_at, dead_reason, last_error
