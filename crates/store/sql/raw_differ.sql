-- For PostgreSQL: SQLite compares row by row as it writes, and needs no look before. One look into the index per
-- record: a join is planned while the table is small, and would read all of it for ever after.
SELECT g.id AS value
  FROM unnest($2::text[], $3::bytea[]) AS g (id, hash)
 WHERE (SELECT r.payload_hash FROM {sync}.raw_diamonds_nivoda r
         WHERE r.feed = $1 AND r.supplier_stone_id = g.id) IS DISTINCT FROM g.hash
