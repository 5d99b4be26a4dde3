-- The place up to which so many failed runs are looked at.
SELECT run_id AS value FROM {ops}.run_ends
 WHERE status = 'failed' AND run_id >= $1 AND run_id < $2
 ORDER BY run_id DESC LIMIT 1 OFFSET $3
