SELECT job_id AS value FROM {ops}.jobs WHERE run_id = $1 AND name = $2
