SELECT alert_id AS value FROM {ops}.alerts WHERE sent_at IS NULL AND alert_id > $1 ORDER BY alert_id LIMIT 1
