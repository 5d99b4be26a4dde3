-- One that happened again meanwhile is not done with.
UPDATE {ops}.alerts SET sent_at = $3 WHERE alert_id = $1 AND times = $2 AND sent_at IS NULL
