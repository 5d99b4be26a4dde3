-- Differs: a list of words is an array here, and JSON there.
SELECT d.supplier_stone_id AS value
  FROM {sync}.diamonds d
 WHERE d.feed = $1 AND d.status = 'active' AND d.supplier_stone_id > $3
   AND d.supplier_stone_id NOT IN (SELECT unnest(p.stone_ids) FROM {ops}.pages p WHERE p.run_id = $2)
 ORDER BY d.supplier_stone_id LIMIT $4
