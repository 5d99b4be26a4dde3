INSERT INTO {ops}.queues (queue, lock_secs, deliveries_max, window_secs, expiry_secs) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (queue) DO UPDATE
   SET lock_secs = excluded.lock_secs, deliveries_max = excluded.deliveries_max,
       window_secs = excluded.window_secs, expiry_secs = excluded.expiry_secs
