UPDATE floor SET status = 'done' WHERE id = $1
