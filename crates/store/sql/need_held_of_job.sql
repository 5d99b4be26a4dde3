-- The same of one job.
SELECT DISTINCT j.job_id, d.name AS job, a.agent_id, a.name AS agent
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
  JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
  LEFT JOIN {ops}.agents a ON a.agent_id = o.agent_id AND a.forgotten_at IS NULL
 WHERE j.job_id = $1 AND d.code = 'succeeded' AND o.url IS NULL
