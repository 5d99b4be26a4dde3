-- Differs: another process may hold the row; take the next one.
WITH taken AS MATERIALIZED (
    SELECT w.delivery_id FROM {ops}.deliveries w
     WHERE w.sent_at IS NULL AND w.dead_at IS NULL AND w.next_at <= $2 AND w.target = ANY ($1)
     ORDER BY w.next_at LIMIT $4 FOR UPDATE SKIP LOCKED)
UPDATE {ops}.deliveries d SET attempt = d.attempt + 1, next_at = $3
  FROM taken t WHERE d.delivery_id = t.delivery_id
RETURNING d.delivery_id, d.target, d.alert, d.held, d.attempt
