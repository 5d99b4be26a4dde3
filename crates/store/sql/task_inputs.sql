-- What the jobs left that a job needs.
SELECT o.made_by, d.name AS job, o.agent_id, o.name, o.path, o.size_bytes, o.sha256, o.url
  FROM {ops}.job_needs n JOIN {ops}.jobs d ON d.job_id = n.needs
  JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
 WHERE n.job_id = $1 ORDER BY d.position, o.name, o.path
