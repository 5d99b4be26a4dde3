-- Differs: a list of words is an array here, and JSON there.
SELECT NOT EXISTS (
    SELECT FROM {ops}.pages p
     WHERE p.run_id = $1 AND $2 = ANY (coalesce(p.stone_ids, p.stone_uuids::text[]))) AS value
