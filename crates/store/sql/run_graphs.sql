-- The names of graphs that begin so, each found by one step through the index, however many graphs have it.
WITH RECURSIVE spelled(value) AS (
    SELECT (SELECT a.name FROM {ops}.graphs a WHERE a.name >= $1 {binary} AND a.name < $2 {binary}
             ORDER BY a.name {binary} LIMIT 1)
    UNION ALL
    SELECT (SELECT b.name FROM {ops}.graphs b WHERE b.name > p.value {binary} AND b.name < $2 {binary}
             ORDER BY b.name {binary} LIMIT 1)
      FROM spelled p WHERE p.value IS NOT NULL)
SELECT value FROM spelled WHERE value IS NOT NULL LIMIT $3
