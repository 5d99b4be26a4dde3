DELETE FROM {ops}.task_logs
 WHERE task_id IN (SELECT t.task_id FROM {ops}.jobs j JOIN {ops}.tasks t ON t.job_id = j.job_id WHERE j.run_id = $1)
