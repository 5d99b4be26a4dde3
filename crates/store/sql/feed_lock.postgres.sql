-- Differs: SQLite has one writer at a time, and needs no lock on a row.
SELECT feed AS value FROM {ops}.feeds WHERE feed = $1 FOR UPDATE
