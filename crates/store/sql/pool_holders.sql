SELECT j.name, j.run_id, j.weight FROM {ops}.jobs j
 WHERE (j.ended_at IS NULL OR j.stopping) AND j.pool = $1 AND (j.stopping OR j.code {in} $2 {ni})
 ORDER BY j.job_id LIMIT 1000
