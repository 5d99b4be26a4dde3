DELETE FROM {ops}.deliveries
 WHERE delivery_id IN (SELECT d.delivery_id FROM {ops}.deliveries d WHERE d.created_at < $1 LIMIT $2)
