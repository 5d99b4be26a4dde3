DELETE FROM {ops}.jobs WHERE job_id {in} $1 {ni}
