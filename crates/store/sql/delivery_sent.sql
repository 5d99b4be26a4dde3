UPDATE {ops}.deliveries SET sent_at = $3, error = NULL
 WHERE delivery_id = $1 AND attempt = $2 AND sent_at IS NULL AND dead_at IS NULL
