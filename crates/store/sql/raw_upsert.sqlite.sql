-- Differs: a page is one statement over arrays there, and one statement per row here. An equal hash leaves the row
-- as it is: nothing is written for what has not changed.
INSERT INTO {sync}.raw_diamonds_nivoda AS r (feed, supplier_stone_id, offer_id, run_id, payload, payload_hash,
    created_at, updated_at)
VALUES ($1, $3, $4, $2, $5, $6, $7, $7)
ON CONFLICT (feed, supplier_stone_id) DO UPDATE SET offer_id = excluded.offer_id, run_id = excluded.run_id,
    payload = excluded.payload, payload_hash = excluded.payload_hash, updated_at = excluded.updated_at
 WHERE r.payload_hash <> excluded.payload_hash
