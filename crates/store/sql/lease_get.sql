SELECT site, holder, name, epoch, until_at, since, version FROM {ops}.controller_leases WHERE site = $1
