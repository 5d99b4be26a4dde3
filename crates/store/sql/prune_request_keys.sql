DELETE FROM {ops}.request_keys WHERE created_at < $1
