-- A minimal queue: one table, one partial index, no triggers. Filled again before each measurement.
DROP TABLE IF EXISTS floor;
CREATE TABLE floor (id bigint PRIMARY KEY, status text NOT NULL, payload text NOT NULL);
INSERT INTO floor SELECT n, 'queued', repeat('x', 100) FROM generate_series(1, :runs) n;
CREATE INDEX floor_ready ON floor (id) WHERE status = 'queued';
VACUUM ANALYZE floor;
