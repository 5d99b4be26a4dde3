UPDATE {ops}.controller_leases SET version = version WHERE site = $1
