-- Differs: a list of words is JSON here, and an array there.
SELECT d.supplier_stone_id AS value
  FROM {sync}.diamonds d
  LEFT JOIN (SELECT DISTINCT s.value AS id FROM {ops}.pages p, json_each(p.stone_ids) s WHERE p.run_id = $2) seen
    ON seen.id = d.supplier_stone_id
 WHERE d.feed = $1 AND d.status = 'active' AND d.supplier_stone_id > $3 AND seen.id IS NULL
 ORDER BY d.supplier_stone_id LIMIT $4
