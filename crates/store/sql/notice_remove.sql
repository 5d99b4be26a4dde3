DELETE FROM {ops}.run_notices WHERE run_id = $1
