-- Differs: another process may hold the row; take the next one.
WITH taken AS MATERIALIZED (
    SELECT n.run_id FROM {ops}.run_notices n WHERE n.run_id > $2 ORDER BY n.run_id LIMIT $1 FOR UPDATE SKIP LOCKED)
DELETE FROM {ops}.run_notices n USING taken t WHERE n.run_id = t.run_id RETURNING n.run_id AS value
