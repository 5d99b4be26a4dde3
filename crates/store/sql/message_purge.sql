DELETE FROM {ops}.messages
 WHERE queue = $1 AND state = $2 AND ended_at <= $3
   AND (queue, message_id, generation) IN (
       SELECT m.queue, m.message_id, m.generation FROM {ops}.messages m
        WHERE m.queue = $1 AND m.state = $2 AND m.ended_at <= $3 LIMIT $4)
