INSERT INTO floor (status, payload) SELECT 'queued', repeat('x', 100) FROM generate_series(1, 1000);
