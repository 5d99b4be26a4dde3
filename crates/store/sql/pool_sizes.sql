SELECT name, size FROM {ops}.pools
