UPDATE {ops}.messages
   SET state = 'dead', ended_at = $6, dead_reason = $7, last_error = $8
 WHERE queue = $1 AND message_id = $2 AND generation = $3 AND state = 'live' AND epoch = $4 AND locked_by = $5
