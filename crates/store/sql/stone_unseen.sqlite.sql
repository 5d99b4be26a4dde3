-- Differs: a list of words is JSON here, and an array there.
SELECT d.supplier_stone_id AS value
  FROM {sync}.diamonds d
 WHERE d.feed = $1 AND d.status = 'active' AND d.supplier_stone_id > $3
   AND d.supplier_stone_id NOT IN (SELECT s.value FROM {ops}.pages p, json_each(p.stone_ids) s WHERE p.run_id = $2)
 ORDER BY d.supplier_stone_id LIMIT $4
