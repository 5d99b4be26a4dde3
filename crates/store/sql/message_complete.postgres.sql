-- Differs: the receipts are binary arrays, and the time may be the database's own.
-- The worker and its epoch stay on the row, so that the same report can be recognised.
UPDATE {ops}.messages m
   SET state = 'done', ended_at = coalesce($1::timestamptz, clock_timestamp()), body = NULL
  FROM unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::uuid[])
           AS u (queue, message_id, generation, epoch, worker)
 WHERE m.queue = u.queue AND m.message_id = u.message_id AND m.generation = u.generation
   AND m.state = 'live' AND m.epoch = u.epoch AND m.locked_by = u.worker
RETURNING m.queue, m.message_id, m.generation, m.epoch, m.visible_at
