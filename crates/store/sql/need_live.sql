-- What live jobs need, and is not there yet or failed.
SELECT n.job_id, n.needs, d.name, d.code
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
 WHERE (j.ended_at IS NULL OR j.stopping) AND d.code <> 'succeeded'
