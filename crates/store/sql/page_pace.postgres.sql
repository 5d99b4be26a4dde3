-- Differs: times are timestamps.
SELECT least(greatest(floor(extract(epoch FROM stored_at - $2) / $3)::bigint, 0), $4 - 1) AS place,
       sum(stored) AS stored
  FROM {ops}.pages WHERE run_id = $1 GROUP BY 1
