SELECT job_id, name, spec, code, task_number, task_id, agent_id, exit_code, requested, position FROM {ops}.jobs
 WHERE run_id = $1 ORDER BY position
