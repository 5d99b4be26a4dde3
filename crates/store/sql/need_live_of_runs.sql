SELECT n.job_id, n.needs, d.name, d.code
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
 WHERE j.run_id {in} $1 {ni} AND (j.ended_at IS NULL OR j.stopping) AND d.code <> 'succeeded'
