SELECT queue, lock_secs, deliveries_max, window_secs, expiry_secs
  FROM {ops}.queues
 WHERE CAST($1 AS text) IS NULL OR queue = $1
 ORDER BY queue
