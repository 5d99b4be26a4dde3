UPDATE {ops}.request_keys SET answer = $4 WHERE scope = $1 AND route = $2 AND key = $3
