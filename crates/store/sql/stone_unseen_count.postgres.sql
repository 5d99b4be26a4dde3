-- Differs: a list of words is an array here, and JSON there. A join, because `NOT IN` compares each with each as soon
-- as the list is larger than the memory for one sort.
SELECT count(*) AS active, count(*) - count(s.id) AS unseen
  FROM {sync}.diamonds d
  LEFT JOIN (SELECT DISTINCT unnest(coalesce(p.stone_ids, p.stone_uuids::text[])) COLLATE "C" AS id
               FROM {ops}.pages p WHERE p.run_id = $2) s
    ON s.id = d.supplier_stone_id
 WHERE d.feed = $1 AND d.status = 'active'
