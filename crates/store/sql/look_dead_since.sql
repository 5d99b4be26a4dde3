SELECT count(*) AS value FROM {ops}.messages WHERE queue = $1 AND grp = $2 AND state = 'dead' AND ended_at > $3
