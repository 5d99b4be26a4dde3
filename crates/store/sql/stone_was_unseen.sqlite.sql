-- Differs: a list of words is JSON here, and an array there.
SELECT NOT EXISTS (SELECT 1 FROM {ops}.pages p, json_each(p.stone_ids) s WHERE p.run_id = $1 AND s.value = $2) AS value
