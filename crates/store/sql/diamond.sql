-- The canonical table `diamonds`: rows that consolidation builds from raw records.

-- name: diamond_proof
-- The active diamonds of a feed in the order of their names, with the columns that the proof compares.
SELECT supplier_stone_id, payload_hash, feed_price_cents, retail_price_cents
  FROM {sync}.diamonds WHERE feed = $1 AND status = 'active' AND supplier_stone_id > $2
 ORDER BY supplier_stone_id LIMIT $3

-- name: diamond_active (postgres)
-- Filters diamond ids: returns the active ones.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT d.supplier_stone_id AS value FROM {sync}.diamonds d
 WHERE d.feed = $1 AND d.status = 'active' AND d.supplier_stone_id = ANY ($2)
 ORDER BY d.supplier_stone_id

-- name: diamond_active (sqlite)
SELECT d.supplier_stone_id AS value FROM {sync}.diamonds d
 WHERE d.feed = $1 AND d.status = 'active' AND d.supplier_stone_id IN (SELECT value FROM json_each($2))
 ORDER BY d.supplier_stone_id

-- name: diamond_not_active (postgres)
-- Filters diamond ids: returns those without an active diamond, as row_not_active does.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT g.id AS record_id, NULL::text AS state
  FROM (SELECT unnest($2::text[]) COLLATE "C" AS id) g
  LEFT JOIN LATERAL (
    SELECT w.status FROM {sync}.diamonds w WHERE w.feed = $1 AND w.supplier_stone_id = g.id OFFSET 0) d ON true
 WHERE d.status IS DISTINCT FROM 'active'

-- name: diamond_not_active (sqlite)
SELECT g.value AS record_id, NULL AS state
  FROM json_each($2) g
  LEFT JOIN {sync}.diamonds d ON d.feed = $1 AND d.supplier_stone_id = g.value
 WHERE d.status IS DISTINCT FROM 'active'

-- name: diamond_active_count
SELECT count(*) AS value FROM {sync}.diamonds d WHERE d.feed = $1 AND d.status = 'active'

-- name: diamond_unseen (postgres)
-- Active diamonds that no page of this sync contained. On PostgreSQL a difference of sets is always sorted or hashed:
-- `NOT IN` and joins compare each row with each while the planner has no statistics.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT d.supplier_stone_id AS value FROM {sync}.diamonds d
 WHERE d.feed = $1 AND d.status = 'active' AND d.supplier_stone_id > $3
EXCEPT
SELECT unnest(coalesce(p.record_ids, p.record_uuids::text[])) COLLATE "C" FROM {ops}.pages p WHERE p.run_id = $2
 ORDER BY 1 LIMIT $4

-- name: diamond_unseen (sqlite)
SELECT d.supplier_stone_id AS value
  FROM {sync}.diamonds d
  LEFT JOIN (SELECT DISTINCT s.value AS id FROM {ops}.pages p, json_each(p.record_ids) s WHERE p.run_id = $2) seen
    ON seen.id = d.supplier_stone_id
 WHERE d.feed = $1 AND d.status = 'active' AND d.supplier_stone_id > $3 AND seen.id IS NULL
 ORDER BY d.supplier_stone_id LIMIT $4

-- name: diamond_unseen_count (postgres)
-- Counts as diamond_unseen does.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT (SELECT count(*) FROM {sync}.diamonds d WHERE d.feed = $1 AND d.status = 'active') AS active,
       (SELECT count(*) FROM (
            SELECT d.supplier_stone_id FROM {sync}.diamonds d WHERE d.feed = $1 AND d.status = 'active'
            EXCEPT
            SELECT unnest(coalesce(p.record_ids, p.record_uuids::text[])) COLLATE "C" FROM {ops}.pages p
             WHERE p.run_id = $2) u) AS unseen

-- name: diamond_unseen_count (sqlite)
SELECT count(*) AS active, count(*) - count(seen.id) AS unseen
  FROM {sync}.diamonds d
  LEFT JOIN (SELECT DISTINCT s.value AS id FROM {ops}.pages p, json_each(p.record_ids) s WHERE p.run_id = $2) seen
    ON seen.id = d.supplier_stone_id
 WHERE d.feed = $1 AND d.status = 'active'

-- name: diamond_delete (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
UPDATE {sync}.diamonds SET status = 'deleted', deleted_at = coalesce($3, {now}), updated_at = coalesce($3, {now})
 WHERE feed = $1 AND status = 'active' AND supplier_stone_id = ANY ($2)

-- name: diamond_delete (sqlite)
UPDATE {sync}.diamonds SET status = 'deleted', deleted_at = $3, updated_at = $3
 WHERE feed = $1 AND status = 'active' AND supplier_stone_id IN (SELECT value FROM json_each($2))

-- name: diamond_upsert (postgres)
-- A row that was built from exactly this payload, mapper and set of rules stays unchanged. A deleted one becomes
-- active.
-- Differs: PostgreSQL writes a batch with one statement over arrays, SQLite with one statement per row.
INSERT INTO {sync}.diamonds AS d (
    feed, supplier_stone_id, offer_id, shape, carats, color, clarity, cut, polish, symmetry, fluorescence,
    fancy_color, fancy_intensity, fancy_overtone, lab_grown, treated, ratio, availability, raw_availability,
    hold_id, feed_price_cents, price_per_carat_cents, retail_price_cents, markup_ratio, rating, rule_id,
    image_url, video_url, certificate_lab, certificate_number, certificate_url, table_pct, depth_pct, length_mm,
    width_mm, depth_mm, girdle, culet_size, eye_clean, supplier_name, payload_hash, mapper_version,
    rules_version, created_at, updated_at)
SELECT $1, g.id, g.offer, g.shape, g.points / 100.0, g.color, g.clarity, g.cut, g.polish, g.symmetry,
       g.fluorescence, g.fancy_color, g.fancy_intensity, g.fancy_overtone, g.lab_grown, g.treated, g.ratio,
       g.availability, g.raw_availability, g.hold_id, g.feed_price_cents, g.price_per_carat_cents,
       g.retail_price_cents, g.markup / 10000.0, g.rating, g.rule_id, g.image_url, g.video_url,
       g.certificate_lab, g.certificate_number, g.certificate_url, g.table_pct, g.depth_pct, g.length_mm,
       g.width_mm, g.depth_mm, g.girdle, g.culet_size, g.eye_clean, g.supplier_name, g.payload_hash, $2, $3,
       coalesce($4, {now}), coalesce($4, {now})
  FROM unnest($5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[],
           $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::boolean[], $19::boolean[],
           $20::real[], $21::text[], $22::text[], $23::text[], $24::bigint[], $25::bigint[], $26::bigint[],
           $27::integer[], $28::integer[], $29::bigint[], $30::text[], $31::text[], $32::text[], $33::text[],
           $34::text[], $35::real[], $36::real[], $37::real[], $38::real[], $39::real[], $40::text[],
           $41::text[], $42::boolean[], $43::text[], $44::bytea[])
    AS g (id, offer, shape, points, color, clarity, cut, polish, symmetry, fluorescence, fancy_color,
          fancy_intensity, fancy_overtone, lab_grown, treated, ratio, availability, raw_availability, hold_id,
          feed_price_cents, price_per_carat_cents, retail_price_cents, markup, rating, rule_id, image_url,
          video_url, certificate_lab, certificate_number, certificate_url, table_pct, depth_pct, length_mm,
          width_mm, depth_mm, girdle, culet_size, eye_clean, supplier_name, payload_hash)
ON CONFLICT (feed, supplier_stone_id) DO UPDATE SET
    offer_id = excluded.offer_id, shape = excluded.shape, carats = excluded.carats, color = excluded.color,
    clarity = excluded.clarity, cut = excluded.cut, polish = excluded.polish, symmetry = excluded.symmetry,
    fluorescence = excluded.fluorescence, fancy_color = excluded.fancy_color,
    fancy_intensity = excluded.fancy_intensity, fancy_overtone = excluded.fancy_overtone,
    lab_grown = excluded.lab_grown, treated = excluded.treated, ratio = excluded.ratio,
    availability = excluded.availability, raw_availability = excluded.raw_availability,
    hold_id = excluded.hold_id, feed_price_cents = excluded.feed_price_cents,
    price_per_carat_cents = excluded.price_per_carat_cents, retail_price_cents = excluded.retail_price_cents,
    markup_ratio = excluded.markup_ratio, rating = excluded.rating, rule_id = excluded.rule_id,
    image_url = excluded.image_url, video_url = excluded.video_url, certificate_lab = excluded.certificate_lab,
    certificate_number = excluded.certificate_number, certificate_url = excluded.certificate_url,
    table_pct = excluded.table_pct, depth_pct = excluded.depth_pct, length_mm = excluded.length_mm,
    width_mm = excluded.width_mm, depth_mm = excluded.depth_mm, girdle = excluded.girdle,
    culet_size = excluded.culet_size, eye_clean = excluded.eye_clean, supplier_name = excluded.supplier_name,
    payload_hash = excluded.payload_hash, mapper_version = excluded.mapper_version,
    rules_version = excluded.rules_version, updated_at = excluded.updated_at, status = 'active',
    deleted_at = NULL
 WHERE d.payload_hash <> excluded.payload_hash OR d.mapper_version <> excluded.mapper_version
    OR d.rules_version <> excluded.rules_version OR d.status <> 'active'

-- name: diamond_upsert (sqlite)
INSERT INTO {sync}.diamonds AS d (
    feed, supplier_stone_id, offer_id, shape, carats, color, clarity, cut, polish, symmetry, fluorescence,
    fancy_color, fancy_intensity, fancy_overtone, lab_grown, treated, ratio, availability, raw_availability,
    hold_id, feed_price_cents, price_per_carat_cents, retail_price_cents, markup_ratio, rating, rule_id,
    image_url, video_url, certificate_lab, certificate_number, certificate_url, table_pct, depth_pct, length_mm,
    width_mm, depth_mm, girdle, culet_size, eye_clean, supplier_name, payload_hash, mapper_version,
    rules_version, created_at, updated_at)
VALUES ($1, $5, $6, $7, $8 / 100.0, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26, $27 / 10000.0, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43,
    $44, $2, $3, $4, $4)
ON CONFLICT (feed, supplier_stone_id) DO UPDATE SET
    offer_id = excluded.offer_id, shape = excluded.shape, carats = excluded.carats, color = excluded.color,
    clarity = excluded.clarity, cut = excluded.cut, polish = excluded.polish, symmetry = excluded.symmetry,
    fluorescence = excluded.fluorescence, fancy_color = excluded.fancy_color,
    fancy_intensity = excluded.fancy_intensity, fancy_overtone = excluded.fancy_overtone,
    lab_grown = excluded.lab_grown, treated = excluded.treated, ratio = excluded.ratio,
    availability = excluded.availability, raw_availability = excluded.raw_availability,
    hold_id = excluded.hold_id, feed_price_cents = excluded.feed_price_cents,
    price_per_carat_cents = excluded.price_per_carat_cents, retail_price_cents = excluded.retail_price_cents,
    markup_ratio = excluded.markup_ratio, rating = excluded.rating, rule_id = excluded.rule_id,
    image_url = excluded.image_url, video_url = excluded.video_url, certificate_lab = excluded.certificate_lab,
    certificate_number = excluded.certificate_number, certificate_url = excluded.certificate_url,
    table_pct = excluded.table_pct, depth_pct = excluded.depth_pct, length_mm = excluded.length_mm,
    width_mm = excluded.width_mm, depth_mm = excluded.depth_mm, girdle = excluded.girdle,
    culet_size = excluded.culet_size, eye_clean = excluded.eye_clean, supplier_name = excluded.supplier_name,
    payload_hash = excluded.payload_hash, mapper_version = excluded.mapper_version,
    rules_version = excluded.rules_version, updated_at = excluded.updated_at, status = 'active',
    deleted_at = NULL
 WHERE d.payload_hash <> excluded.payload_hash OR d.mapper_version <> excluded.mapper_version
    OR d.rules_version <> excluded.rules_version OR d.status <> 'active'
