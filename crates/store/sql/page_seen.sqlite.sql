-- Differs: a list of words is JSON here, and an array there.
SELECT count(DISTINCT s.value) AS value
  FROM {ops}.pages p, json_each(p.stone_ids) s WHERE p.run_id = $1 AND p.partition_id = $2
