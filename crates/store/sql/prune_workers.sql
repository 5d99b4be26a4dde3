-- A worker that has ended is of use to the sweeper while a run may still name it.
DELETE FROM {ops}.workers
 WHERE ended_at < $1
   AND NOT EXISTS (SELECT 1 FROM {ops}.runs r WHERE r.claimed_by = workers.name
                      AND r.status IN ('claimed', 'running') AND r.finished_at IS NULL)
