-- Differs: whole hundredths and ten-thousandths become numbers with decimals, exact there and REAL here.
INSERT INTO {sync}.pricing_rules (priority, feed, stone_type, lab_grown, shapes, carat_min, carat_max, price_min,
    price_max, markup_ratio, rating, active)
VALUES ($1, $2, $3, $4, $5, $6 / 100.0, $7 / 100.0, $8 / 100.0, $9 / 100.0, $10 / 10000.0, $11, $12)
RETURNING id AS value
