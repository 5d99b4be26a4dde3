-- Those of a project are the ones that hold a run of it: a worker process itself belongs to nobody. The two ways to say
-- that a run is held are what the index of held runs asks for, each on one of the databases.
SELECT worker_id, name, host, pid, labels, version, started_at, beat_at, ended_at, draining
  FROM {ops}.workers w
 WHERE CAST($1 AS text) IS NULL
    OR EXISTS (SELECT 1 FROM {ops}.runs r
                WHERE r.claimed_by = w.name AND r.worker_id = w.worker_id AND r.project_id = $1
                  AND r.status IN ('claimed', 'running') AND r.finished_at IS NULL)
 ORDER BY ended_at IS NOT NULL, name, started_at DESC
 LIMIT 1000
