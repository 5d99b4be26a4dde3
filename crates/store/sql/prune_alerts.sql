DELETE FROM {ops}.alerts
 WHERE alert_id IN (SELECT a.alert_id FROM {ops}.alerts a
                     WHERE coalesce(a.last_at, a.created_at) < $1 ORDER BY a.alert_id LIMIT $2)
