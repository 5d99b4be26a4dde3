-- Differs: SQLite has one writer at a time, and needs no lock on a row.
SELECT feed AS value FROM {sync}.run_metadata WHERE run_id = $1
