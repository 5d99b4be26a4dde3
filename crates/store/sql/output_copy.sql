-- What a job left whose result is taken over.
INSERT INTO {ops}.job_outputs (job_id, task_id, name, path, size_bytes, sha256, url, made_by, agent_id)
SELECT j.job_id, o.task_id, o.name, o.path, o.size_bytes, o.sha256, o.url, o.made_by, o.agent_id
  FROM {ops}.jobs j JOIN {ops}.job_outputs o ON o.job_id = j.reused_from AND o.task_id = j.task_id
 WHERE j.run_id = $1 AND j.reused_from IS NOT NULL
