-- Ids sort by age, so the oldest come first and nothing younger is read.
DELETE FROM {ops}.runs WHERE run_id IN (
    SELECT run_id FROM {ops}.runs WHERE run_id < $1 AND finished_at < $2 ORDER BY run_id LIMIT $3)
RETURNING run_id AS value
