DELETE FROM {ops}.artifacts WHERE run_id = $1
