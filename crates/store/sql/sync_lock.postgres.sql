-- Differs: SQLite has one writer at a time, and needs no lock on a row. On PostgreSQL the lock is a statement of its
-- own: in one statement with the count, two last partitions would each see the other as open. Rows of workers refer to
-- the sync, and must not wait for it: whoever writes one may hold what we wait for.
SELECT feed AS value FROM {sync}.run_metadata WHERE run_id = $1 FOR NO KEY UPDATE
