-- The dead letter that has a successor is done: remembered in the window like any other, so that its id cannot come
-- back by another door.
UPDATE {ops}.messages
   SET state = 'done', ended_at = $3, body = NULL, locked_by = NULL
 WHERE queue = $1 AND state = 'dead' AND (CAST($2 AS text) IS NULL OR message_id = $2)
   AND EXISTS (SELECT 1 FROM {ops}.messages n
                WHERE n.queue = messages.queue AND n.message_id = messages.message_id
                  AND n.generation = messages.generation + 1)
