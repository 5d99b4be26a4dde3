-- Worker processes, as users see them. Their heartbeats are in kernel/.

-- name: worker_list
-- The workers of a project are those that hold a run of it. Both conditions of a held run are needed: each is the
-- condition of the index runs_held on one of the databases.
SELECT worker_id, name, host, pid, labels, version, started_at, beat_at, ended_at, draining
  FROM {ops}.workers w
 WHERE CAST($1 AS text) IS NULL
    OR EXISTS (SELECT 1 FROM {ops}.runs r
                WHERE r.claimed_by = w.name AND r.worker_id = w.worker_id AND r.project_id = $1
                  AND r.status IN ('claimed', 'running') AND r.finished_at IS NULL)
 ORDER BY ended_at IS NOT NULL, name, started_at DESC
 LIMIT 1000

-- name: worker_get
SELECT worker_id, name, host, pid, labels, version, started_at, beat_at, ended_at, draining
  FROM {ops}.workers WHERE worker_id = $1

-- name: worker_drain
UPDATE {ops}.workers SET draining = $2 WHERE worker_id = $1 AND ended_at IS NULL AND draining <> $2
