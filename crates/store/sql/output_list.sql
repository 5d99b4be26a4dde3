SELECT o.made_by, d.name AS job, o.agent_id, o.name, o.path, o.size_bytes, o.sha256, o.url
  FROM {ops}.jobs d JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
 WHERE d.job_id = $1 AND d.code IN ('succeeded', 'nonzero_exit', 'unmatched_patterns') ORDER BY o.name, o.path
