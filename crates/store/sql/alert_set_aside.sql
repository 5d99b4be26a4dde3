UPDATE {ops}.alerts SET sent_at = $2 WHERE alert_id = $1 AND sent_at IS NULL
