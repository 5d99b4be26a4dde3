-- Records: those to consolidate, and those that a sync has not seen.

-- name: record_open (postgres)
-- Records whose canonical row was not built from exactly this payload, mapper and set of rules. Payloads are returned
-- up to $5 bytes in total, the first one always; other records are returned without one. On PostgreSQL each record is
-- one search per index: a join would be planned while the tables are small, and would keep reading all of them.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT o.record_id, o.payload_hash, o.bytes,
       CASE WHEN o.upto <= $5 OR o.upto = o.bytes THEN o.payload END AS payload
  FROM (
    SELECT r.record_id, r.payload, r.payload_hash, octet_length(r.payload)::bigint AS bytes,
           (sum(octet_length(r.payload)) OVER (ORDER BY r.record_id ROWS UNBOUNDED PRECEDING))::bigint AS upto
      FROM (SELECT DISTINCT unnest($2::text[]) COLLATE "C" AS id) g
     CROSS JOIN LATERAL (
        SELECT w.{raw_id} AS record_id, w.payload::text AS payload, w.payload_hash FROM {raw} w
         WHERE w.{raw_id} = g.id OFFSET 0) r
     WHERE (SELECT d.payload_hash = r.payload_hash AND d.mapper_version = $3 AND d.rules_version = $4
                   AND d.status = 'active'
              FROM {sync}.diamonds d WHERE d.feed = $1 AND d.supplier_stone_id = g.id) IS NOT TRUE
    ) o
 ORDER BY o.record_id

-- name: record_open (sqlite)
SELECT o.record_id, o.payload_hash, o.bytes,
       CASE WHEN o.upto <= $5 OR o.upto = o.bytes THEN r.payload END AS payload
  FROM (
    SELECT r.{raw_id} AS record_id, r.payload_hash, octet_length(r.payload) AS bytes,
           sum(octet_length(r.payload)) OVER (ORDER BY r.{raw_id} ROWS UNBOUNDED PRECEDING) AS upto
      FROM (SELECT DISTINCT value AS id FROM json_each($2)) g
      JOIN {raw} r ON r.{raw_id} = g.id
      LEFT JOIN {sync}.diamonds d ON d.feed = $1 AND d.supplier_stone_id = g.id
     WHERE d.payload_hash IS NULL OR d.payload_hash <> r.payload_hash OR d.mapper_version <> $3
        OR d.rules_version <> $4 OR d.status <> 'active'
    ) o
  JOIN {raw} r ON r.{raw_id} = o.record_id
 ORDER BY o.record_id

-- name: record_stale
-- The next records of a feed whose price was computed with other rules, another payload or another mapper. Reads in the
-- order of one index, with one search in the other per record: a join would read everything for each batch.
SELECT r.{raw_id} AS value
  FROM {raw} r
 WHERE r.{raw_id} > $2
   AND (SELECT d.rules_version <> $3 OR d.mapper_version <> $4 OR d.payload_hash <> r.payload_hash
          FROM {sync}.diamonds d
         WHERE d.feed = $1 AND d.supplier_stone_id = r.{raw_id} AND d.status = 'active')
 ORDER BY r.{raw_id} LIMIT $5

-- name: record_unseen (postgres)
-- The records in $2 that no page of this sync, or of a later sync of its feed, contained. A difference of sets reads
-- the pages once, not per record.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT unnest($2::text[]) COLLATE "C" AS value
EXCEPT
SELECT unnest(coalesce(p.record_ids, p.record_uuids::text[])) COLLATE "C"
  FROM {sync}.run_metadata b
  JOIN {sync}.run_metadata m ON m.feed = b.feed AND m.started_at >= b.started_at
  JOIN {ops}.pages p ON p.run_id = m.run_id
 WHERE b.run_id = $1
 ORDER BY 1

-- name: record_unseen (sqlite)
SELECT value FROM json_each($2)
EXCEPT
SELECT s.value
  FROM {sync}.run_metadata b
  JOIN {sync}.run_metadata m ON m.feed = b.feed AND m.started_at >= b.started_at
  JOIN {ops}.pages p ON p.run_id = m.run_id, json_each(p.record_ids) s
 WHERE b.run_id = $1
 ORDER BY 1
