-- Differs: a page is one statement over arrays here, and one statement per row there. An equal hash leaves the row
-- as it is: nothing is written for what has not changed.
INSERT INTO {sync}.raw_diamonds_nivoda AS r (feed, supplier_stone_id, offer_id, run_id, payload, payload_hash,
    created_at, updated_at)
SELECT $1, g.id, g.offer, $2, g.payload::jsonb, g.hash, coalesce($7, {now}), coalesce($7, {now})
  FROM unnest($3::text[], $4::text[], $5::text[], $6::bytea[]) AS g (id, offer, payload, hash)
ON CONFLICT (feed, supplier_stone_id) DO UPDATE SET offer_id = excluded.offer_id, run_id = excluded.run_id,
    payload = excluded.payload, payload_hash = excluded.payload_hash, updated_at = excluded.updated_at
 WHERE r.payload_hash <> excluded.payload_hash
