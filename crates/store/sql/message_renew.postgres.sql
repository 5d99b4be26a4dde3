-- Differs: the receipts are binary arrays, and the time may be the database's own.
UPDATE {ops}.messages m
   SET visible_at = coalesce($1::timestamptz, clock_timestamp()) + q.lock_secs * interval '1 second'
  FROM unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::uuid[])
           AS u (queue, message_id, generation, epoch, worker)
  JOIN {ops}.queues q ON q.queue = u.queue
 WHERE m.queue = u.queue AND m.message_id = u.message_id AND m.generation = u.generation
   AND m.state = 'live' AND m.epoch = u.epoch AND m.locked_by = u.worker
RETURNING m.queue, m.message_id, m.generation, m.epoch, m.visible_at
