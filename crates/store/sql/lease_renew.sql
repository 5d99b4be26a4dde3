UPDATE {ops}.controller_leases SET until_at = $4 WHERE site = $1 AND holder = $2 AND epoch = $3
