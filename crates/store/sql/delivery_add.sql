-- One that waits and was not tried yet stands for all of its group.
INSERT INTO {ops}.deliveries AS d (delivery_id, target, kind, grp, alert_id, alert, due_at, next_at, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8)
ON CONFLICT (target, kind, grp) WHERE attempt = 0 AND sent_at IS NULL AND dead_at IS NULL
DO UPDATE SET alert_id = excluded.alert_id, alert = excluded.alert, held = d.held + 1
