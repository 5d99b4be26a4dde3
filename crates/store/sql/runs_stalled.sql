-- Only held runs are looked through: `runs_held` lists them.
SELECT r.run_id AS value FROM {ops}.runs r
 WHERE r.status IN ('claimed', 'running') AND r.stalled_at IS NOT NULL ORDER BY r.run_id LIMIT $1
