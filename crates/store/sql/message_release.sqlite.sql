-- Differs: a worker's id is text here, and there is nothing to gain from going group by group.
-- Only what is locked or delayed is changed: a lock that has ended by itself needs nobody. A message goes back to its
-- old place: its wait was long enough.
UPDATE {ops}.messages
   SET locked_by = NULL, visible_at = ready_at
 WHERE state = 'live' AND visible_at > $1
   AND (locked_by = $2
        OR $2 IS NULL AND locked_by IN (SELECT w.worker_id FROM {ops}.workers w WHERE w.ended_at IS NOT NULL))
