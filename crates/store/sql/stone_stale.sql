-- The next stones of a feed whose price was made by other rules, or from another payload or mapper.
SELECT r.supplier_stone_id AS value
  FROM {sync}.raw_diamonds_nivoda r
  JOIN {sync}.diamonds d ON d.feed = r.feed AND d.supplier_stone_id = r.supplier_stone_id
 WHERE r.feed = $1 AND r.supplier_stone_id > $2 AND d.status = 'active'
   AND (d.rules_version <> $3 OR d.mapper_version <> $4 OR d.payload_hash <> r.payload_hash)
 ORDER BY r.supplier_stone_id LIMIT $5
