-- Differs: a list of words is JSON here, and an array there.
SELECT count(*) AS active,
       coalesce(sum(CASE WHEN d.supplier_stone_id NOT IN (
           SELECT s.value FROM {ops}.pages p, json_each(p.stone_ids) s WHERE p.run_id = $2) THEN 1 ELSE 0 END), 0)
           AS unseen
  FROM {sync}.diamonds d WHERE d.feed = $1 AND d.status = 'active'
