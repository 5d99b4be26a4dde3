-- The guard of every step, and the versions that its jobs get: who holds the lease no more, gets none.
UPDATE {ops}.controller_leases SET version = version + $4 WHERE site = $1 AND holder = $2 AND epoch = $3
RETURNING version AS value
