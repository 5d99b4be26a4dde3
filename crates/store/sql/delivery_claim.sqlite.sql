-- Differs: there are no row locks to skip; this is the only writer.
UPDATE {ops}.deliveries SET attempt = attempt + 1, next_at = $3
 WHERE delivery_id IN (SELECT w.delivery_id FROM {ops}.deliveries w
                        WHERE w.sent_at IS NULL AND w.dead_at IS NULL AND w.next_at <= $2
                          AND w.target IN (SELECT j.value FROM json_each($1) j)
                        ORDER BY w.next_at LIMIT $4)
RETURNING delivery_id, target, alert, held, attempt
