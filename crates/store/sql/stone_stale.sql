-- The next stones of a feed whose price was made by other rules, or from another payload or mapper. In the order of
-- the index, with one look into the other per stone: a join would read everything for each batch.
SELECT r.supplier_stone_id AS value
  FROM {sync}.raw_diamonds_nivoda r
 WHERE r.feed = $1 AND r.supplier_stone_id > $2
   AND (SELECT d.rules_version <> $3 OR d.mapper_version <> $4 OR d.payload_hash <> r.payload_hash
          FROM {sync}.diamonds d
         WHERE d.feed = r.feed AND d.supplier_stone_id = r.supplier_stone_id AND d.status = 'active')
 ORDER BY r.supplier_stone_id LIMIT $5
