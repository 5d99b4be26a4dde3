SELECT claimed_by, count(*) AS active_runs FROM {ops}.runs
 WHERE status IN ('claimed', 'running') GROUP BY claimed_by ORDER BY claimed_by
