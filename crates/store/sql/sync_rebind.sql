UPDATE {sync}.run_metadata SET ops_run_id = $2 WHERE run_id = $1
