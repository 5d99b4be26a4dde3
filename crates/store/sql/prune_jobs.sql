DELETE FROM {ops}.jobs WHERE run_id = $1
