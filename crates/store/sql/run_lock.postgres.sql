-- Differs: SQLite has one writer at a time, and needs no lock on a row.
SELECT status AS value FROM {ops}.runs WHERE run_id = $1 FOR NO KEY UPDATE
