SELECT body_hash, answer FROM {ops}.request_keys WHERE scope = $1 AND route = $2 AND key = $3
