-- Differs: a list of words is JSON here, and an array there. A difference of sets reads the ledger once,
-- and not once per stone.
SELECT value FROM json_each($2)
EXCEPT
SELECT s.value FROM {ops}.pages p, json_each(p.stone_ids) s WHERE p.run_id = $1
 ORDER BY 1
