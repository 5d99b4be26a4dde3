SELECT name AS value FROM {ops}.jobs WHERE run_id = $1 AND name {in} $2 {ni}
