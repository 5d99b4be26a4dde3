-- Differs: there are no row locks to skip; this is the only writer.
DELETE FROM {ops}.run_notices
 WHERE run_id IN (SELECT run_id FROM {ops}.run_notices WHERE run_id > $2 ORDER BY run_id LIMIT $1)
RETURNING run_id AS value
