-- The active stones of a feed in the order of their names, as far as a proof looks at them.
SELECT supplier_stone_id, payload_hash, feed_price_cents, retail_price_cents
  FROM {sync}.diamonds WHERE feed = $1 AND status = 'active' AND supplier_stone_id > $2
 ORDER BY supplier_stone_id LIMIT $3
