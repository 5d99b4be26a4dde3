-- A minimal queue on SQLite: one table, one partial index, no triggers.
CREATE TABLE floor (id INTEGER PRIMARY KEY, status TEXT NOT NULL, payload TEXT NOT NULL);
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)
INSERT INTO floor SELECT i, 'queued', printf('%.100c', 'x') FROM n;
CREATE INDEX floor_ready ON floor (id) WHERE status = 'queued';
