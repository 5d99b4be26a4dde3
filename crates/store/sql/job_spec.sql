SELECT spec FROM {ops}.jobs WHERE job_id = $1
