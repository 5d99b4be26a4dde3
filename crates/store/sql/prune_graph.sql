DELETE FROM {ops}.graphs WHERE run_id = $1
