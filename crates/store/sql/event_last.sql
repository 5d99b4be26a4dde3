SELECT CAST(coalesce(max(seq), 0) AS bigint) AS value FROM {ops}.run_events WHERE run_id = $1
