-- Differs: a list of words is JSON here, and an array there. A stone is open while its canonical row was not built
-- from exactly this payload, mapper and set of rules.
SELECT r.supplier_stone_id, r.offer_id, r.payload, r.payload_hash
  FROM (SELECT DISTINCT value AS id FROM json_each($2)) g
  JOIN {sync}.raw_diamonds_nivoda r ON r.feed = $1 AND r.supplier_stone_id = g.id
  LEFT JOIN {sync}.diamonds d ON d.feed = $1 AND d.supplier_stone_id = g.id
 WHERE d.payload_hash IS NULL OR d.payload_hash <> r.payload_hash OR d.mapper_version <> $3
    OR d.rules_version <> $4 OR d.status <> 'active'
 ORDER BY r.supplier_stone_id
