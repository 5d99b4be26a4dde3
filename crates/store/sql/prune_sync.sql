DELETE FROM {sync}.run_metadata WHERE run_id = $1
