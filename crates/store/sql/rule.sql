-- Pricing rules.

-- name: rule_list (postgres)
-- Decimals as whole hundredths and ten-thousandths.
-- Differs: a REAL of SQLite has to be rounded.
SELECT id, priority, feed, stone_type, lab_grown, shapes, (carat_min * 100)::bigint AS points_min,
       (carat_max * 100)::bigint AS points_max, (price_min * 100)::bigint AS price_min,
       (price_max * 100)::bigint AS price_max, (markup_ratio * 10000)::integer AS markup, rating, active
  FROM {sync}.pricing_rules ORDER BY priority, id

-- name: rule_list (sqlite)
SELECT id, priority, feed, stone_type, lab_grown, shapes, CAST(round(carat_min * 100) AS INTEGER) AS points_min,
       CAST(round(carat_max * 100) AS INTEGER) AS points_max, CAST(round(price_min * 100) AS INTEGER) AS price_min,
       CAST(round(price_max * 100) AS INTEGER) AS price_max, CAST(round(markup_ratio * 10000) AS INTEGER) AS markup,
       rating, active
  FROM {sync}.pricing_rules ORDER BY priority, id

-- name: rule_add (postgres)
-- Whole hundredths and ten-thousandths become decimals.
-- Differs: decimals are exact on PostgreSQL and REAL on SQLite.
INSERT INTO {sync}.pricing_rules (priority, feed, stone_type, lab_grown, shapes, carat_min, carat_max, price_min,
    price_max, markup_ratio, rating, active)
VALUES ($1, $2, $3, $4, $5, $6::bigint / 100.0, $7::bigint / 100.0, $8::bigint / 100.0, $9::bigint / 100.0,
    $10::bigint / 10000.0, $11, $12)
RETURNING id AS value

-- name: rule_add (sqlite)
INSERT INTO {sync}.pricing_rules (priority, feed, stone_type, lab_grown, shapes, carat_min, carat_max, price_min,
    price_max, markup_ratio, rating, active)
VALUES ($1, $2, $3, $4, $5, $6 / 100.0, $7 / 100.0, $8 / 100.0, $9 / 100.0, $10 / 10000.0, $11, $12)
RETURNING id AS value

-- name: rule_remove
DELETE FROM {sync}.pricing_rules WHERE id = $1

-- name: rule_set_find
SELECT CAST(version AS bigint) AS value FROM {ops}.rule_sets WHERE digest = $1

-- name: rule_set_add
INSERT INTO {ops}.rule_sets (digest, rules, created_at) VALUES ($1, $2, coalesce($3, {now}))
ON CONFLICT (digest) DO NOTHING

-- name: rule_set_get
SELECT rules FROM {ops}.rule_sets WHERE version = $1
