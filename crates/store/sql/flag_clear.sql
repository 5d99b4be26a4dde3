DELETE FROM {ops}.flags WHERE flag = $1 AND scope = $2
