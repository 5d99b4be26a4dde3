UPDATE {sync}.worker_runs SET records_processed = records_processed + $3, worker_id = $4
 WHERE run_id = $1 AND partition_id = $2
