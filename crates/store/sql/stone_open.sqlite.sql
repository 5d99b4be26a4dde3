-- Differs: a list of words is JSON here, and an array there. A stone is open while its canonical row was not built
-- from exactly this payload, mapper and set of rules. Payloads are given up to $5 bytes, and the first in any case; the
-- others are named.
SELECT o.supplier_stone_id, o.payload_hash, o.bytes,
       CASE WHEN o.upto <= $5 OR o.upto = o.bytes THEN r.payload END AS payload
  FROM (
    SELECT r.supplier_stone_id, r.payload_hash, octet_length(r.payload) AS bytes,
           sum(octet_length(r.payload)) OVER (ORDER BY r.supplier_stone_id ROWS UNBOUNDED PRECEDING) AS upto
      FROM (SELECT DISTINCT value AS id FROM json_each($2)) g
      JOIN {sync}.raw_diamonds_nivoda r ON r.feed = $1 AND r.supplier_stone_id = g.id
      LEFT JOIN {sync}.diamonds d ON d.feed = $1 AND d.supplier_stone_id = g.id
     WHERE d.payload_hash IS NULL OR d.payload_hash <> r.payload_hash OR d.mapper_version <> $3
        OR d.rules_version <> $4 OR d.status <> 'active'
    ) o
  JOIN {sync}.raw_diamonds_nivoda r ON r.feed = $1 AND r.supplier_stone_id = o.supplier_stone_id
 ORDER BY o.supplier_stone_id
