-- The values that begin so, each found by one step through the index, however many runs have it.
WITH RECURSIVE spelled(value) AS (
    SELECT (SELECT a.git_sha FROM {ops}.runs a WHERE a.git_sha >= $1 {binary} AND a.git_sha < $2 {binary}
             ORDER BY a.git_sha {binary} LIMIT 1)
    UNION ALL
    SELECT (SELECT b.git_sha FROM {ops}.runs b WHERE b.git_sha > p.value {binary} AND b.git_sha < $2 {binary}
             ORDER BY b.git_sha {binary} LIMIT 1)
      FROM spelled p WHERE p.value IS NOT NULL)
SELECT value FROM spelled WHERE value IS NOT NULL LIMIT $3
