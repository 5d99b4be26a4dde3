-- What is to be said at the end of a run: the jobs that did not succeed, those first that failed by themselves.
SELECT job_id, name, code, message FROM {ops}.jobs
 WHERE run_id = $1 AND code <> 'succeeded'
 ORDER BY CASE code WHEN 'dependency_failed' THEN 2 WHEN 'cancelled_by_user' THEN 1 ELSE 0 END, position LIMIT $2
