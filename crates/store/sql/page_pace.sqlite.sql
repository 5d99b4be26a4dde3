-- Differs: times are microseconds.
SELECT min(max((stored_at - $2) / ($3 * 1000000), 0), $4 - 1) AS place, sum(stored) AS stored
  FROM pages WHERE run_id = $1 GROUP BY 1
