-- Differs: SQLite has one writer at a time, and needs no lock on a row. On PostgreSQL the lock is a statement of its
-- own: in one statement with the count, two last partitions would each see the other as open.
SELECT feed AS value FROM {sync}.run_metadata WHERE run_id = $1 FOR UPDATE
