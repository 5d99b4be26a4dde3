-- Differs: numbers with decimals become whole hundredths and ten-thousandths, which a REAL has to be rounded to.
SELECT id, priority, feed, stone_type, lab_grown, shapes, CAST(round(carat_min * 100) AS INTEGER) AS points_min,
       CAST(round(carat_max * 100) AS INTEGER) AS points_max, CAST(round(price_min * 100) AS INTEGER) AS price_min,
       CAST(round(price_max * 100) AS INTEGER) AS price_max, CAST(round(markup_ratio * 10000) AS INTEGER) AS markup,
       rating, active
  FROM {sync}.pricing_rules ORDER BY priority, id
