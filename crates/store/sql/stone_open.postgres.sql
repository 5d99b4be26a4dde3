-- Differs: a list of words is an array here, and JSON there. A stone is open while its canonical row was not built
-- from exactly this payload, mapper and set of rules. One look into each index per stone: a join is planned while the
-- tables are small, and would read all of them for ever after. Payloads are given up to $5 bytes, and the first in any
-- case; the others are named.
SELECT o.supplier_stone_id, o.payload_hash, o.bytes,
       CASE WHEN o.upto <= $5 OR o.upto = o.bytes THEN o.payload END AS payload
  FROM (
    SELECT r.supplier_stone_id, r.payload, r.payload_hash, octet_length(r.payload)::bigint AS bytes,
           (sum(octet_length(r.payload)) OVER (ORDER BY r.supplier_stone_id ROWS UNBOUNDED PRECEDING))::bigint AS upto
      FROM (SELECT DISTINCT unnest($2::text[]) COLLATE "C" AS id) g
     CROSS JOIN LATERAL (
        SELECT w.supplier_stone_id, w.payload::text AS payload, w.payload_hash FROM {sync}.raw_diamonds_nivoda w
         WHERE w.feed = $1 AND w.supplier_stone_id = g.id OFFSET 0) r
     WHERE (SELECT d.payload_hash = r.payload_hash AND d.mapper_version = $3 AND d.rules_version = $4
                   AND d.status = 'active'
              FROM {sync}.diamonds d WHERE d.feed = $1 AND d.supplier_stone_id = g.id) IS NOT TRUE
    ) o
 ORDER BY o.supplier_stone_id
