SELECT run_id AS value FROM {ops}.runs WHERE retry_of = $1
