-- Differs: the messages are binary arrays, and the time may be the database's own.
-- What comes back was sent; what does not is a duplicate. A row that was completed outside the window is used again,
-- and its epoch goes on, so that a receipt of its first life never fits.
INSERT INTO {ops}.messages AS m (queue, message_id, generation, grp, body, run_id, trace_id, enqueued_at, ready_at,
                                 visible_at, expires_at, locked_by, epoch, deliveries)
SELECT u.queue, u.message_id, u.generation, u.grp, u.body, u.run_id, u.trace_id, t.now,
       t.now + u.delay * interval '1 microsecond',
       t.now + CASE WHEN $10::uuid IS NULL THEN u.delay * interval '1 microsecond'
                    ELSE q.lock_secs * interval '1 second' END,
       t.now + u.delay * interval '1 microsecond' + q.expiry_secs * interval '1 second',
       $10, ($10 IS NOT NULL)::integer, ($10 IS NOT NULL)::integer
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) t,
       unnest($2::text[], $3::text[], $4::integer[], $5::text[], $6::jsonb[], $7::text[], $8::text[], $9::bigint[])
           AS u (queue, message_id, generation, grp, body, run_id, trace_id, delay)
  JOIN {ops}.queues q ON q.queue = u.queue
    ON CONFLICT (queue, message_id, generation) DO UPDATE
   SET grp = excluded.grp, state = 'live', body = excluded.body, run_id = excluded.run_id,
       trace_id = excluded.trace_id, enqueued_at = excluded.enqueued_at, ready_at = excluded.ready_at,
       visible_at = excluded.visible_at, expires_at = excluded.expires_at, locked_by = excluded.locked_by,
       epoch = m.epoch + excluded.epoch, deliveries = excluded.deliveries,
       ended_at = NULL, dead_reason = NULL, last_error = NULL
 WHERE m.state = 'done'
   AND m.ended_at <= excluded.enqueued_at - interval '1 second' * coalesce(
           (SELECT q.window_secs FROM {ops}.queues q WHERE q.queue = m.queue), 0)
RETURNING m.queue, m.message_id, m.generation, m.epoch, m.visible_at
