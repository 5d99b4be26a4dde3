-- Agents, pools and the lease of the controller.

-- fragment: agent_columns
-- The columns of an agent.
agent_id, name, host, labels, capacity, version, projects, token_id, boot_id, draining, registered_at, seen_at,
left_at, forgotten_at, secret_hash, dir_lock, isolation

-- name: agent_put
-- The token of an agent that exists stays; agent_rebind changes it. $13 is the secret hash that the caller has checked:
-- if another process registered in between, no row changes.
INSERT INTO {ops}.agents (agent_id, name, host, labels, capacity, version, projects, token_id, boot_id,
                          registered_at, seen_at, secret_hash, dir_lock, isolation)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, {now}), coalesce($10, {now}), $11, $12, $14)
ON CONFLICT (agent_id) DO UPDATE SET name = excluded.name, host = excluded.host, labels = excluded.labels,
       capacity = excluded.capacity, version = excluded.version, projects = excluded.projects,
       boot_id = excluded.boot_id, seen_at = excluded.seen_at, left_at = NULL, forgotten_at = NULL,
       secret_hash = excluded.secret_hash, dir_lock = excluded.dir_lock,
       isolation = excluded.isolation
 WHERE agents.secret_hash = $13

-- name: agent_rebind
-- From now on, another token speaks for the agent.
UPDATE {ops}.agents SET token_id = $2 WHERE agent_id = $1

-- name: agent_of_token
-- The other agent that a token is bound to.
SELECT {agent_columns}
  FROM {ops}.agents WHERE token_id = $1 AND agent_id <> $2 AND forgotten_at IS NULL LIMIT 1

-- name: agent_get
SELECT {agent_columns}
  FROM {ops}.agents WHERE agent_id = $1

-- name: agent_lock (postgres)
-- Differs: SQLite has one writer at a time and needs no row locks.
SELECT {agent_columns}
  FROM {ops}.agents WHERE agent_id = $1 FOR NO KEY UPDATE

-- name: agent_lock (sqlite)
SELECT {agent_columns}
  FROM {ops}.agents WHERE agent_id = $1

-- name: agent_list
SELECT {agent_columns}
  FROM {ops}.agents
 WHERE forgotten_at IS NULL AND ($1 IS NULL OR projects = $1) ORDER BY name, agent_id LIMIT $2

-- name: agent_live
-- The agents that the controller needs: those with a recent heartbeat, and those with active tasks.
SELECT {agent_columns}
  FROM {ops}.agents a
 WHERE (a.forgotten_at IS NULL AND a.seen_at > $1)
    OR a.agent_id IN (SELECT t.agent_id FROM {ops}.tasks t WHERE t.active)

-- name: agent_beat
UPDATE {ops}.agents SET seen_at = coalesce($2, {now}), left_at = NULL WHERE agent_id = $1

-- name: agent_leave
UPDATE {ops}.agents SET left_at = coalesce($2, {now}) WHERE agent_id = $1

-- name: agent_drain
UPDATE {ops}.agents SET draining = $2 WHERE agent_id = $1 AND draining <> $2

-- name: agent_forget
UPDATE {ops}.agents SET forgotten_at = coalesce($2, {now}) WHERE agent_id = $1 AND forgotten_at IS NULL

-- name: agent_jobs
SELECT DISTINCT job_id AS value FROM {ops}.tasks WHERE agent_id = $1 AND active ORDER BY job_id

-- name: agent_runs
-- The unfinished runs with job outputs that only this agent has.
SELECT DISTINCT j.run_id AS value
  FROM {ops}.job_outputs o JOIN {ops}.jobs j ON j.job_id = o.job_id JOIN {ops}.runs r ON r.run_id = j.run_id
 WHERE o.agent_id = $1 AND o.url IS NULL AND r.finished_at IS NULL

-- name: agent_share (postgres)
-- Locks the agents that alone have outputs of these jobs: they remove none of them before the transaction ends.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite, which needs no row locks.
SELECT a.name AS value FROM {ops}.agents a
 WHERE a.agent_id IN (SELECT o.agent_id FROM {ops}.job_outputs o WHERE o.job_id = ANY ($1) AND o.url IS NULL)
 ORDER BY a.agent_id FOR SHARE OF a

-- name: agent_share (sqlite)
SELECT a.name AS value FROM {ops}.agents a
 WHERE a.agent_id IN (SELECT o.agent_id FROM {ops}.job_outputs o
                       WHERE o.job_id IN (SELECT value FROM json_each($1)) AND o.url IS NULL)
 ORDER BY a.agent_id

-- name: agent_room (postgres)
-- The capacity that jobs use per agent: running jobs, and jobs that are being stopped.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT agent_id, sum(weight) AS used FROM {ops}.jobs
 WHERE (ended_at IS NULL OR stopping) AND agent_id IS NOT NULL AND (stopping OR code = ANY ($1))
 GROUP BY agent_id

-- name: agent_room (sqlite)
SELECT agent_id, sum(weight) AS used FROM {ops}.jobs
 WHERE (ended_at IS NULL OR stopping) AND agent_id IS NOT NULL
   AND (stopping OR code IN (SELECT value FROM json_each($1)))
 GROUP BY agent_id

-- name: pool_list (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT p.name, p.size, coalesce((SELECT sum(j.weight) FROM {ops}.jobs j
                         WHERE (j.ended_at IS NULL OR j.stopping) AND j.pool = p.name
                           AND (j.stopping OR j.code = ANY ($1))), 0) AS used
  FROM {ops}.pools p ORDER BY p.name

-- name: pool_list (sqlite)
SELECT p.name, p.size, coalesce((SELECT sum(j.weight) FROM {ops}.jobs j
                         WHERE (j.ended_at IS NULL OR j.stopping) AND j.pool = p.name
                           AND (j.stopping OR j.code IN (SELECT value FROM json_each($1)))), 0) AS used
  FROM {ops}.pools p ORDER BY p.name

-- name: pool_sizes
SELECT name, size FROM {ops}.pools

-- name: pool_put
INSERT INTO {ops}.pools AS p (name, size) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET size = excluded.size
 WHERE p.size <> excluded.size

-- name: pool_remove
DELETE FROM {ops}.pools
 WHERE name = $1
   AND NOT EXISTS (SELECT 1 FROM {ops}.jobs j WHERE (j.ended_at IS NULL OR j.stopping) AND j.pool = $1)

-- name: pool_holders (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT j.name, j.run_id, j.weight FROM {ops}.jobs j
 WHERE (j.ended_at IS NULL OR j.stopping) AND j.pool = $1 AND (j.stopping OR j.code = ANY ($2))
 ORDER BY j.job_id LIMIT 1000

-- name: pool_holders (sqlite)
SELECT j.name, j.run_id, j.weight FROM {ops}.jobs j
 WHERE (j.ended_at IS NULL OR j.stopping) AND j.pool = $1
   AND (j.stopping OR j.code IN (SELECT value FROM json_each($2)))
 ORDER BY j.job_id LIMIT 1000

-- name: lease_get
SELECT site, holder, name, epoch, until_at, since, version FROM {ops}.controller_leases WHERE site = $1

-- name: lease_lock (postgres)
-- FOR UPDATE waits for every transaction that the holder has begun.
-- Differs: SQLite has one writer at a time and needs no row locks.
SELECT site, holder, name, epoch, until_at, since, version FROM {ops}.controller_leases WHERE site = $1 FOR UPDATE

-- name: lease_lock (sqlite)
SELECT site, holder, name, epoch, until_at, since, version FROM {ops}.controller_leases WHERE site = $1

-- name: lease_take
UPDATE {ops}.controller_leases SET holder = $2, name = $3, epoch = epoch + 1, until_at = $4, since = $5 WHERE site = $1

-- name: lease_renew
UPDATE {ops}.controller_leases SET until_at = $4 WHERE site = $1 AND holder = $2 AND epoch = $3

-- name: lease_raise
-- The fence of every step of the controller: returns the versions for its jobs, or no row if the lease is lost.
UPDATE {ops}.controller_leases SET version = version + $4 WHERE site = $1 AND holder = $2 AND epoch = $3
RETURNING version AS value

-- name: lease_touch
UPDATE {ops}.controller_leases SET version = version WHERE site = $1
