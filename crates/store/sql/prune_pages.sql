DELETE FROM {ops}.pages WHERE run_id = $1
