-- Differs: a list of words is JSON here, and an array there.
SELECT count(*) AS active, count(*) - count(seen.id) AS unseen
  FROM {sync}.diamonds d
  LEFT JOIN (SELECT DISTINCT s.value AS id FROM {ops}.pages p, json_each(p.stone_ids) s WHERE p.run_id = $2) seen
    ON seen.id = d.supplier_stone_id
 WHERE d.feed = $1 AND d.status = 'active'
