-- Records of feeds with a definition: which version of each is in the table of its feed.

-- name: row_open (postgres)
-- Records whose row was not built from exactly this payload and mapper, as record_open returns them.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT o.record_id, o.payload_hash, o.bytes,
       CASE WHEN o.upto <= $4 OR o.upto = o.bytes THEN o.payload END AS payload
  FROM (
    SELECT r.record_id, r.payload, r.payload_hash, octet_length(r.payload)::bigint AS bytes,
           (sum(octet_length(r.payload)) OVER (ORDER BY r.record_id ROWS UNBOUNDED PRECEDING))::bigint AS upto
      FROM (SELECT DISTINCT unnest($2::text[]) COLLATE "C" AS id) g
     CROSS JOIN LATERAL (
        SELECT w.{raw_id} AS record_id, w.payload::text AS payload, w.payload_hash FROM {raw} w
         WHERE w.{raw_id} = g.id OFFSET 0) r
     WHERE (SELECT f.built_hash = r.payload_hash AND f.mapper_version = $3
              FROM {ops}.feed_records f WHERE f.feed = $1 AND f.record_id = g.id) IS NOT TRUE
    ) o
 ORDER BY o.record_id

-- name: row_open (sqlite)
SELECT o.record_id, o.payload_hash, o.bytes,
       CASE WHEN o.upto <= $4 OR o.upto = o.bytes THEN r.payload END AS payload
  FROM (
    SELECT r.{raw_id} AS record_id, r.payload_hash, octet_length(r.payload) AS bytes,
           sum(octet_length(r.payload)) OVER (ORDER BY r.{raw_id} ROWS UNBOUNDED PRECEDING) AS upto
      FROM (SELECT DISTINCT value AS id FROM json_each($2)) g
      JOIN {raw} r ON r.{raw_id} = g.id
      LEFT JOIN {ops}.feed_records f ON f.feed = $1 AND f.record_id = g.id
     WHERE f.built_hash IS NULL OR f.built_hash <> r.payload_hash OR f.mapper_version <> $3
    ) o
  JOIN {raw} r ON r.{raw_id} = o.record_id
 ORDER BY o.record_id

-- name: row_stale
-- The next records whose row was built from another payload or mapper, or never. Absent records are left out: the
-- source no longer has them. Reads as record_stale does.
SELECT r.{raw_id} AS value
  FROM {raw} r
 WHERE r.{raw_id} > $2
   AND (SELECT f.state = 'absent' OR (f.built_hash = r.payload_hash AND f.mapper_version = $3)
          FROM {ops}.feed_records f WHERE f.feed = $1 AND f.record_id = r.{raw_id}) IS NOT TRUE
 ORDER BY r.{raw_id} LIMIT $4

-- name: row_active (postgres)
-- Filters record ids: returns the active ones.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT f.record_id AS value FROM {ops}.feed_records f
 WHERE f.feed = $1 AND f.state = 'active' AND f.record_id = ANY ($2)
 ORDER BY f.record_id

-- name: row_active (sqlite)
SELECT f.record_id AS value FROM {ops}.feed_records f
 WHERE f.feed = $1 AND f.state = 'active' AND f.record_id IN (SELECT value FROM json_each($2))
 ORDER BY f.record_id

-- name: row_not_active (postgres)
-- Filters record ids: returns those without an active row, with the state of the row, or NULL without an entry. One
-- search per record, as in row_open.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT g.id AS record_id, f.state
  FROM (SELECT unnest($2::text[]) COLLATE "C" AS id) g
  LEFT JOIN LATERAL (
    SELECT w.state FROM {ops}.feed_records w WHERE w.feed = $1 AND w.record_id = g.id OFFSET 0) f ON true
 WHERE f.state IS DISTINCT FROM 'active'

-- name: row_not_active (sqlite)
SELECT g.value AS record_id, f.state
  FROM json_each($2) g
  LEFT JOIN {ops}.feed_records f ON f.feed = $1 AND f.record_id = g.value
 WHERE f.state IS DISTINCT FROM 'active'

-- name: row_active_count
SELECT count(*) AS value FROM {ops}.feed_records f WHERE f.feed = $1 AND f.state = 'active'

-- name: row_unseen (postgres)
-- Active records that no page of this sync contained, read as diamond_unseen does.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT f.record_id AS value FROM {ops}.feed_records f
 WHERE f.feed = $1 AND f.state = 'active' AND f.record_id > $3
EXCEPT
SELECT unnest(coalesce(p.record_ids, p.record_uuids::text[])) COLLATE "C" FROM {ops}.pages p WHERE p.run_id = $2
 ORDER BY 1 LIMIT $4

-- name: row_unseen (sqlite)
SELECT f.record_id AS value
  FROM {ops}.feed_records f
  LEFT JOIN (SELECT DISTINCT s.value AS id FROM {ops}.pages p, json_each(p.record_ids) s WHERE p.run_id = $2) seen
    ON seen.id = f.record_id
 WHERE f.feed = $1 AND f.state = 'active' AND f.record_id > $3 AND seen.id IS NULL
 ORDER BY f.record_id LIMIT $4

-- name: row_unseen_count (postgres)
-- Counts as row_unseen does.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT (SELECT count(*) FROM {ops}.feed_records f WHERE f.feed = $1 AND f.state = 'active') AS active,
       (SELECT count(*) FROM (
            SELECT f.record_id FROM {ops}.feed_records f WHERE f.feed = $1 AND f.state = 'active'
            EXCEPT
            SELECT unnest(coalesce(p.record_ids, p.record_uuids::text[])) COLLATE "C" FROM {ops}.pages p
             WHERE p.run_id = $2) u) AS unseen

-- name: row_unseen_count (sqlite)
SELECT count(*) AS active, count(*) - count(seen.id) AS unseen
  FROM {ops}.feed_records f
  LEFT JOIN (SELECT DISTINCT s.value AS id FROM {ops}.pages p, json_each(p.record_ids) s WHERE p.run_id = $2) seen
    ON seen.id = f.record_id
 WHERE f.feed = $1 AND f.state = 'active'

-- name: record_entries (postgres)
-- The rows of these records, locked until the transaction ends: two writers must not both replace the same row.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite, which has one writer at a time.
SELECT f.record_id, f.row_key, f.built_hash, f.state
  FROM (SELECT DISTINCT unnest($2::text[]) COLLATE "C" AS id) g
 CROSS JOIN LATERAL (
    SELECT w.record_id, w.row_key, w.built_hash, w.state FROM {ops}.feed_records w
     WHERE w.feed = $1 AND w.record_id = g.id FOR UPDATE) f

-- name: record_entries (sqlite)
SELECT f.record_id, f.row_key, f.built_hash, f.state
  FROM (SELECT DISTINCT value AS id FROM json_each($2)) g
 CROSS JOIN {ops}.feed_records f ON f.feed = $1 AND f.record_id = g.id

-- name: row_claims (postgres)
-- The row keys in $2 that belong to an active record which is not in $3. Records of other feeds that write the table
-- count, too. A feed can get the part of the key that another feed had before.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite. SQLite keeps the order of a cross join: it would search
-- the list for each record.
SELECT g.row_key AS value
  FROM (SELECT DISTINCT unnest($2::text[]) COLLATE "C" AS row_key) g
 WHERE EXISTS (SELECT FROM {ops}.feed_records f
                WHERE f.feed IN (SELECT $1 UNION ALL SELECT t.feed FROM {ops}.feed_tables t WHERE t.table_name = $4)
                  AND f.row_key = g.row_key AND f.state = 'active' AND NOT (f.feed = $1 AND f.record_id = ANY ($3))
               OFFSET 0)

-- name: row_claims (sqlite)
SELECT DISTINCT g.value AS value
  FROM json_each($2) g
 CROSS JOIN (SELECT $1 AS feed UNION SELECT t.feed FROM {ops}.feed_tables t WHERE t.table_name = $4) o
 CROSS JOIN {ops}.feed_records f ON f.feed = o.feed AND f.row_key = g.value
 WHERE f.state = 'active' AND NOT (f.feed = $1 AND f.record_id IN (SELECT value FROM json_each($3)))

-- name: row_put (postgres)
-- Differs: PostgreSQL writes a batch with one statement over arrays, SQLite with one statement per row.
INSERT INTO {ops}.feed_records (feed, record_id, row_key, built_hash, mapper_version, state, updated_at)
SELECT $1, g.id, g.row_key, g.hash, $2, g.state, coalesce($3, {now})
  FROM unnest($4::text[], $5::text[], $6::bytea[], $7::text[]) AS g (id, row_key, hash, state)
 ORDER BY g.id
ON CONFLICT (feed, record_id) DO UPDATE SET row_key = excluded.row_key, built_hash = excluded.built_hash,
    mapper_version = excluded.mapper_version, state = excluded.state, updated_at = excluded.updated_at

-- name: row_put (sqlite)
INSERT INTO {ops}.feed_records (feed, record_id, row_key, built_hash, mapper_version, state, updated_at)
VALUES ($1, $4, $5, $6, $2, $7, $3)
ON CONFLICT (feed, record_id) DO UPDATE SET row_key = excluded.row_key, built_hash = excluded.built_hash,
    mapper_version = excluded.mapper_version, state = excluded.state, updated_at = excluded.updated_at

-- name: row_absent (postgres)
-- Marks active records as absent; returns the keys of their rows.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
UPDATE {ops}.feed_records SET state = 'absent', built_hash = '', updated_at = coalesce($3, {now})
 WHERE feed = $1 AND state = 'active' AND record_id = ANY ($2)
RETURNING row_key

-- name: row_absent (sqlite)
UPDATE {ops}.feed_records SET state = 'absent', built_hash = x'', updated_at = $3
 WHERE feed = $1 AND state = 'active' AND record_id IN (SELECT value FROM json_each($2))
RETURNING row_key

-- name: row_forget (postgres)
-- No payload has an empty hash, so each row is built again, and appended rows are appended again.
-- Differs: the databases write an empty byte string differently.
UPDATE {ops}.feed_records SET built_hash = '' WHERE feed = $1 AND state = 'active'

-- name: row_forget (sqlite)
UPDATE {ops}.feed_records SET built_hash = x'' WHERE feed = $1 AND state = 'active'
