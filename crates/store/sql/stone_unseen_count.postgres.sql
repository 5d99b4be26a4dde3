-- Differs: a list of words is an array here, and JSON there.
SELECT count(*) AS active,
       coalesce(sum(CASE WHEN d.supplier_stone_id NOT IN (
           SELECT unnest(p.stone_ids) FROM {ops}.pages p WHERE p.run_id = $2) THEN 1 ELSE 0 END), 0) AS unseen
  FROM {sync}.diamonds d WHERE d.feed = $1 AND d.status = 'active'
