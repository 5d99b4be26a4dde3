-- Differs: a list of words is an array here, and JSON there.
SELECT count(DISTINCT s.id) AS value
  FROM {ops}.pages p CROSS JOIN LATERAL unnest(p.stone_ids) AS s (id) WHERE p.run_id = $1 AND p.partition_id = $2
