-- The same four commits as lifecycle.sql on the minimal table.
INSERT INTO floor (status, payload) VALUES ('queued',
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx');
UPDATE floor SET status = 'claimed'
 WHERE id = (SELECT id FROM floor WHERE status = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id \gset
UPDATE floor SET status = 'running' WHERE id = :id AND status = 'claimed';
UPDATE floor SET status = 'done' WHERE id = :id AND status = 'running';
