-- Differs: a list of words is an array here, and JSON there. A difference of sets, which is sorted or hashed whatever
-- the planner believes: `NOT IN` and joins compare each with each while it knows nothing of the tables.
SELECT d.supplier_stone_id AS value FROM {sync}.diamonds d
 WHERE d.feed = $1 AND d.status = 'active' AND d.supplier_stone_id > $3
EXCEPT
SELECT unnest(coalesce(p.stone_ids, p.stone_uuids::text[])) COLLATE "C" FROM {ops}.pages p WHERE p.run_id = $2
 ORDER BY 1 LIMIT $4
