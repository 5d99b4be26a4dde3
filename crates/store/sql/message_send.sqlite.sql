-- Differs: the messages are one JSON text, and the time is always the caller's.
-- What comes back was sent; what does not is a duplicate. A row that was completed outside the window is used again,
-- and its epoch goes on, so that a receipt of its first life never fits.
INSERT INTO {ops}.messages AS m (queue, message_id, generation, grp, body, run_id, trace_id, enqueued_at, ready_at,
                                 visible_at, expires_at, locked_by, epoch, deliveries)
SELECT q.queue, json_extract(u.value, '$[1]'), json_extract(u.value, '$[2]'), json_extract(u.value, '$[3]'),
       json_extract(u.value, '$[4]'), json_extract(u.value, '$[5]'), json_extract(u.value, '$[6]'), $1,
       $1 + json_extract(u.value, '$[7]'),
       $1 + CASE WHEN $3 IS NULL THEN json_extract(u.value, '$[7]') ELSE q.lock_secs * 1000000 END,
       $1 + json_extract(u.value, '$[7]') + q.expiry_secs * 1000000,
       $3, $3 IS NOT NULL, $3 IS NOT NULL
  FROM json_each($2) u
  JOIN {ops}.queues q ON q.queue = json_extract(u.value, '$[0]')
 WHERE true
    ON CONFLICT (queue, message_id, generation) DO UPDATE
   SET grp = excluded.grp, state = 'live', body = excluded.body, run_id = excluded.run_id,
       trace_id = excluded.trace_id, enqueued_at = excluded.enqueued_at, ready_at = excluded.ready_at,
       visible_at = excluded.visible_at, expires_at = excluded.expires_at, locked_by = excluded.locked_by,
       epoch = m.epoch + excluded.epoch, deliveries = excluded.deliveries,
       ended_at = NULL, dead_reason = NULL, last_error = NULL
 WHERE m.state = 'done'
   AND m.ended_at <= excluded.enqueued_at - 1000000 * coalesce(
           (SELECT q.window_secs FROM {ops}.queues q WHERE q.queue = m.queue), 0)
RETURNING queue, message_id, generation, epoch, visible_at
