DELETE FROM {ops}.job_events WHERE job_id IN (SELECT j.job_id FROM {ops}.jobs j WHERE j.run_id = $1)
