-- Differs: whole hundredths and ten-thousandths become numbers with decimals, exact there and REAL here.
INSERT INTO {sync}.pricing_rules (priority, feed, stone_type, lab_grown, shapes, carat_min, carat_max, price_min,
    price_max, markup_ratio, rating, active)
VALUES ($1, $2, $3, $4, $5, $6::bigint / 100.0, $7::bigint / 100.0, $8::bigint / 100.0, $9::bigint / 100.0,
    $10::bigint / 10000.0, $11, $12)
RETURNING id AS value
