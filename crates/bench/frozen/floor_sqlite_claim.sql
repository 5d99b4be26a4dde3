UPDATE floor SET status = 'claimed' WHERE id = (SELECT id FROM floor WHERE status = 'queued' ORDER BY id LIMIT 1)
RETURNING id
