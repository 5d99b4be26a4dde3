DELETE FROM {ops}.run_events WHERE run_id = $1
