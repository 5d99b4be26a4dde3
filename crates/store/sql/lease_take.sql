UPDATE {ops}.controller_leases SET holder = $2, name = $3, epoch = epoch + 1, until_at = $4, since = $5 WHERE site = $1
