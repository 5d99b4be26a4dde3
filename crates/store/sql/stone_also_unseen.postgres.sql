-- Differs: a list of words is an array here, and JSON there. A difference of sets reads the ledger once,
-- and not once per stone.
SELECT unnest($2::text[]) COLLATE "C" AS value
EXCEPT
SELECT unnest(coalesce(p.stone_ids, p.stone_uuids::text[])) COLLATE "C" FROM {ops}.pages p WHERE p.run_id = $1
 ORDER BY 1
