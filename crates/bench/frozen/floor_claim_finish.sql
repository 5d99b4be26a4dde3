UPDATE floor SET status = 'claimed'
 WHERE id = (SELECT id FROM floor WHERE status = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id \gset
UPDATE floor SET status = 'done' WHERE id = :id;
