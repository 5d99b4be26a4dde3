SELECT claimed_by, count(*) AS active_runs FROM {ops}.runs
 WHERE status IN ('claimed', 'running') AND claimed_by IS NOT NULL AND finished_at IS NULL
   AND (CAST($1 AS text) IS NULL OR project_id = $1)
 GROUP BY claimed_by ORDER BY claimed_by
