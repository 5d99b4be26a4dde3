-- The marks of a kind that begin so, each found by one step through the index, however many runs have it.
WITH RECURSIVE spelled(value) AS (
    SELECT (SELECT a.value FROM {ops}.run_marks a WHERE a.kind = $4 AND a.value >= $1 AND a.value < $2
             ORDER BY a.value LIMIT 1)
    UNION ALL
    SELECT (SELECT b.value FROM {ops}.run_marks b WHERE b.kind = $4 AND b.value > p.value AND b.value < $2
             ORDER BY b.value LIMIT 1)
      FROM spelled p WHERE p.value IS NOT NULL)
SELECT value FROM spelled WHERE value IS NOT NULL LIMIT $3
