-- Differs: numbers with decimals become whole hundredths and ten-thousandths, which a REAL has to be rounded to.
SELECT id, priority, feed, stone_type, lab_grown, shapes, (carat_min * 100)::bigint AS points_min,
       (carat_max * 100)::bigint AS points_max, (price_min * 100)::bigint AS price_min,
       (price_max * 100)::bigint AS price_max, (markup_ratio * 10000)::integer AS markup, rating, active
  FROM {sync}.pricing_rules ORDER BY priority, id
