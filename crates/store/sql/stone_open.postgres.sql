-- Differs: a list of words is an array here, and JSON there. A stone is open while its canonical row was not built
-- from exactly this payload, mapper and set of rules.
SELECT r.supplier_stone_id, r.offer_id, r.payload::text AS payload, r.payload_hash
  FROM (SELECT DISTINCT unnest($2::text[]) AS id) g
  JOIN {sync}.raw_diamonds_nivoda r ON r.feed = $1 AND r.supplier_stone_id = g.id
  LEFT JOIN {sync}.diamonds d ON d.feed = $1 AND d.supplier_stone_id = g.id
 WHERE d.payload_hash IS DISTINCT FROM r.payload_hash OR d.mapper_version <> $3 OR d.rules_version <> $4
    OR d.status <> 'active'
 ORDER BY r.supplier_stone_id
