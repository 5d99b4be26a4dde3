-- Differs: a list of words is an array here, and JSON there.
SELECT count(DISTINCT s.id) AS value
  FROM {ops}.pages p CROSS JOIN LATERAL unnest(coalesce(p.stone_ids, p.stone_uuids::text[])) AS s (id)
 WHERE p.run_id = $1 AND p.partition_id = $2
