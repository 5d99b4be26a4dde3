-- Differs: SQLite compares row by row as it writes, and needs no look before.
SELECT g.id AS value
  FROM unnest($2::text[], $3::bytea[]) AS g (id, hash)
  LEFT JOIN {sync}.raw_diamonds_nivoda r ON r.feed = $1 AND r.supplier_stone_id = g.id
 WHERE r.payload_hash IS DISTINCT FROM g.hash
