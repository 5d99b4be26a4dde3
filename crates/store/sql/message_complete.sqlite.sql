-- Differs: the receipts are one JSON text, and the time is always the caller's.
-- The worker and its epoch stay on the row, so that the same report can be recognised.
UPDATE {ops}.messages AS m
   SET state = 'done', ended_at = $1, body = NULL
  FROM json_each($2) u
 WHERE m.queue = json_extract(u.value, '$[0]') AND m.message_id = json_extract(u.value, '$[1]')
   AND m.generation = json_extract(u.value, '$[2]') AND m.state = 'live'
   AND m.epoch = json_extract(u.value, '$[3]') AND m.locked_by = json_extract(u.value, '$[4]')
RETURNING queue, message_id, generation, epoch, visible_at
