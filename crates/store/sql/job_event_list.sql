SELECT seq, from_code, to_code, message, at FROM {ops}.job_events WHERE job_id = $1 ORDER BY seq LIMIT 10000
