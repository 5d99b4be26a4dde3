-- Pages of syncs, and the raw records that they bring.

-- name: page_store (postgres)
-- Stores a page in one function call. SQLite uses several statements: see page_insert and partition_advance.
SELECT {ops}.store_page($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
                        $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
                        $33, $34)

-- name: page_insert (sqlite)
-- On PostgreSQL, store_page does this.
INSERT INTO {ops}.pages (run_id, partition_id, page_offset, pass, fetched, stored, changed, page_hash, record_ids,
    stored_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, {now}))

-- name: page_pace (postgres)
-- The number of stored records per interval of $3 seconds since $2.
-- Differs: times are timestamps on PostgreSQL and microseconds on SQLite.
SELECT least(greatest(floor(extract(epoch FROM stored_at - $2) / $3)::bigint, 0), $4 - 1) AS place,
       sum(stored) AS stored
  FROM {ops}.pages WHERE run_id = $1 GROUP BY 1

-- name: page_pace (sqlite)
SELECT min(max((stored_at - $2) / ($3 * 1000000), 0), $4 - 1) AS place, sum(stored) AS stored
  FROM pages WHERE run_id = $1 GROUP BY 1

-- name: page_last (postgres)
-- Differs: names of records that are UUIDs are stored as UUIDs on PostgreSQL. On SQLite all names are JSON.
SELECT p.page_offset, p.page_hash, coalesce(p.record_ids, p.record_uuids::text[]) AS record_ids
  FROM {ops}.pages p
 WHERE run_id = $1 AND partition_id = $2 AND pass = $3 AND page_offset < $4
 ORDER BY page_offset DESC LIMIT $5

-- name: page_last (sqlite)
SELECT page_offset, page_hash, record_ids FROM {ops}.pages
 WHERE run_id = $1 AND partition_id = $2 AND pass = $3 AND page_offset < $4
 ORDER BY page_offset DESC LIMIT $5

-- name: page_range (postgres)
-- Differs: names of records that are UUIDs are stored as UUIDs on PostgreSQL. On SQLite all names are JSON.
SELECT p.page_offset, p.page_hash, coalesce(p.record_ids, p.record_uuids::text[]) AS record_ids
  FROM {ops}.pages p
 WHERE run_id = $1 AND partition_id = $2 AND page_offset >= $3
 ORDER BY page_offset LIMIT $4

-- name: page_range (sqlite)
SELECT page_offset, page_hash, record_ids FROM {ops}.pages
 WHERE run_id = $1 AND partition_id = $2 AND page_offset >= $3
 ORDER BY page_offset LIMIT $4

-- name: page_seen (postgres)
-- Names that begin with $4 stand for records without an id.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
WITH named AS (
    SELECT p.pass, s.id, starts_with(s.id, $4) AS nameless
      FROM {ops}.pages p CROSS JOIN LATERAL unnest(coalesce(p.record_ids, p.record_uuids::text[])) AS s (id)
     WHERE p.run_id = $1 AND p.partition_id = $2)
SELECT count(DISTINCT id) FILTER (WHERE NOT nameless) AS seen,
       count(DISTINCT id) FILTER (WHERE NOT nameless AND pass = $3) AS seen_in_pass,
       count(*) FILTER (WHERE nameless AND pass = $3) AS nameless,
       (SELECT coalesce(sum(p.fetched), 0)::bigint FROM {ops}.pages p
         WHERE p.run_id = $1 AND p.partition_id = $2 AND p.pass = $3) AS places
  FROM named

-- name: page_seen (sqlite)
WITH named AS (
    SELECT p.pass, s.value AS id, substr(s.value, 1, length($4)) = $4 AS nameless
      FROM {ops}.pages p, json_each(p.record_ids) s
     WHERE p.run_id = $1 AND p.partition_id = $2)
SELECT count(DISTINCT id) FILTER (WHERE NOT nameless) AS seen,
       count(DISTINCT id) FILTER (WHERE NOT nameless AND pass = $3) AS seen_in_pass,
       count(*) FILTER (WHERE nameless AND pass = $3) AS nameless,
       (SELECT coalesce(sum(p.fetched), 0) FROM {ops}.pages p
         WHERE p.run_id = $1 AND p.partition_id = $2 AND p.pass = $3) AS places
  FROM named

-- name: page_distinct (postgres)
-- The number of records that a sync has read. Names that begin with $2 stand for records without an id.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT count(DISTINCT s.id) AS value
  FROM {ops}.pages p CROSS JOIN LATERAL unnest(coalesce(p.record_ids, p.record_uuids::text[])) AS s (id)
 WHERE p.run_id = $1 AND NOT starts_with(s.id, $2)

-- name: page_distinct (sqlite)
SELECT count(DISTINCT s.value) AS value
  FROM {ops}.pages p, json_each(p.record_ids) s
 WHERE p.run_id = $1 AND substr(s.value, 1, length($2)) <> $2

-- name: page_repeats (postgres)
-- The number of times that the pages of a sync repeat a record, by the stage that rejected the record in this sync and
-- by the state of its row. Diamonds have no such state.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
WITH repeated AS (
    SELECT s.id COLLATE "C" AS id, count(*) - 1 AS extra
      FROM {ops}.pages p CROSS JOIN LATERAL unnest(coalesce(p.record_ids, p.record_uuids::text[])) AS s (id)
     WHERE p.run_id = $2 GROUP BY 1 HAVING count(*) > 1)
SELECT r.stage, f.state, sum(g.extra)::bigint AS extra
  FROM repeated g
  LEFT JOIN {ops}.rejected_rows r ON r.feed = $1 AND r.record_id = g.id AND r.run_id = $2
  LEFT JOIN {ops}.feed_records f ON f.feed = $1 AND f.record_id = g.id
 GROUP BY r.stage, f.state

-- name: page_repeats (sqlite)
WITH repeated AS (
    SELECT s.value AS id, count(*) - 1 AS extra
      FROM {ops}.pages p, json_each(p.record_ids) s
     WHERE p.run_id = $2 GROUP BY 1 HAVING count(*) > 1)
SELECT r.stage, f.state, sum(g.extra) AS extra
  FROM repeated g
  LEFT JOIN {ops}.rejected_rows r ON r.feed = $1 AND r.record_id = g.id AND r.run_id = $2
  LEFT JOIN {ops}.feed_records f ON f.feed = $1 AND f.record_id = g.id
 GROUP BY r.stage, f.state

-- name: raw_upsert (postgres)
-- An equal hash leaves the row unchanged: nothing is written for unchanged records.
-- Differs: PostgreSQL stores a page with one statement over arrays, SQLite with one statement per row.
INSERT INTO {raw} AS r ({raw_id}, offer_id, run_id, payload, payload_hash, created_at, updated_at)
SELECT g.id, g.offer, $1, g.payload::jsonb, g.hash, coalesce($6, {now}), coalesce($6, {now})
  FROM unnest($2::text[], $3::text[], $4::text[], $5::bytea[]) AS g (id, offer, payload, hash)
ON CONFLICT ({raw_id}) DO UPDATE SET offer_id = excluded.offer_id, run_id = excluded.run_id,
    payload = excluded.payload, payload_hash = excluded.payload_hash, updated_at = excluded.updated_at
 WHERE r.payload_hash <> excluded.payload_hash

-- name: raw_upsert (sqlite)
INSERT INTO {raw} AS r ({raw_id}, offer_id, run_id, payload, payload_hash, created_at, updated_at)
VALUES ($2, $3, $1, $4, $5, $6, $6)
ON CONFLICT ({raw_id}) DO UPDATE SET offer_id = excluded.offer_id, run_id = excluded.run_id,
    payload = excluded.payload, payload_hash = excluded.payload_hash, updated_at = excluded.updated_at
 WHERE r.payload_hash <> excluded.payload_hash

-- name: raw_create (postgres)
-- The raw table of a feed: as raw_diamonds_nivoda of the first migration.
-- Differs: the types, as in the migrations.
CREATE TABLE {raw} (
    {raw_id}          text COLLATE "C" PRIMARY KEY,
    offer_id          text,
    run_id            uuid NOT NULL,
    payload           jsonb NOT NULL,
    payload_hash      bytea NOT NULL,
    source_updated_at timestamptz,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL
)

-- name: raw_create (sqlite)
CREATE TABLE {raw} (
    {raw_id}          TEXT NOT NULL PRIMARY KEY,
    offer_id          TEXT,
    run_id            TEXT NOT NULL,
    payload           TEXT NOT NULL,
    payload_hash      BLOB NOT NULL,
    source_updated_at INTEGER,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL
) STRICT

-- name: raw_columns (postgres)
-- The columns of a table, to recognise a table of another owner under the name of a raw table.
-- Differs: each database has its own catalog.
SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod) AS value FROM pg_attribute a
 WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attname COLLATE "C"

-- name: raw_columns (sqlite)
SELECT c.name || ' ' || c.type AS value FROM pragma_table_xinfo($1) c ORDER BY c.name
