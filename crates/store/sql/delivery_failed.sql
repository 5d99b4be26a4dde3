UPDATE {ops}.deliveries SET error = $3, next_at = coalesce($4, next_at), dead_at = $5
 WHERE delivery_id = $1 AND attempt = $2 AND sent_at IS NULL AND dead_at IS NULL
