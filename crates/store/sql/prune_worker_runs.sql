DELETE FROM {sync}.worker_runs WHERE run_id = $1
