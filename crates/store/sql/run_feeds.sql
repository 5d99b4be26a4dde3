-- The keys of feeds that begin so, each found by one step through the index, however many runs have it.
WITH RECURSIVE spelled(value) AS (
    SELECT (SELECT a.concurrency_key FROM {ops}.runs a
             WHERE a.lane = 'sync' AND a.concurrency_key >= $1 AND a.concurrency_key < $2
             ORDER BY a.concurrency_key LIMIT 1)
    UNION ALL
    SELECT (SELECT b.concurrency_key FROM {ops}.runs b
             WHERE b.lane = 'sync' AND b.concurrency_key > p.value AND b.concurrency_key < $2
             ORDER BY b.concurrency_key LIMIT 1)
      FROM spelled p WHERE p.value IS NOT NULL)
SELECT value FROM spelled WHERE value IS NOT NULL LIMIT $3
