DELETE FROM {sync}.partition_progress WHERE run_id = $1
