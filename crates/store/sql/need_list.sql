SELECT j.position, d.position AS needed
  FROM {ops}.jobs j
  JOIN {ops}.job_needs n ON n.job_id = j.job_id
  JOIN {ops}.jobs d ON d.job_id = n.needs
 WHERE j.run_id = $1 AND j.position > $2 AND j.position <= $3
 ORDER BY j.position, d.position
