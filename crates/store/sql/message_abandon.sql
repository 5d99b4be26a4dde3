-- Gives a message back. The epoch stays: asked again, the row still says that it was this delivery that gave it back.
UPDATE {ops}.messages
   SET locked_by = NULL, ready_at = $6, visible_at = $6, deliveries = deliveries - $7, last_error = $8
 WHERE queue = $1 AND message_id = $2 AND generation = $3 AND state = 'live' AND epoch = $4 AND locked_by = $5
