SELECT d.name, d.code FROM {ops}.job_needs n JOIN {ops}.jobs d ON d.job_id = n.needs
 WHERE n.job_id = $1 AND d.code <> 'succeeded' ORDER BY d.position LIMIT 1000
