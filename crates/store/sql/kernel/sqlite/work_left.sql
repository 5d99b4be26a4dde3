-- The remaining work of a worker that ends when there is none.

-- name: work_left
-- Counts the runs that a worker could still have to execute: runs that fit it and are ready, wait for their key or
-- become available within $3 seconds. Held runs whose worker may yet be lost count too. Only zero matters, so the
-- count stops at 100. Graphs are for controllers and agents: no worker waits for one.
SELECT count(*) FROM (
    SELECT 1 FROM (
        SELECT label_set_id FROM runs WHERE gate = 'open'
        UNION ALL
        SELECT label_set_id FROM runs WHERE gate = 'key' AND lane <> 'graph'
        UNION ALL
        SELECT label_set_id FROM runs WHERE gate = 'time' AND available_at <= $4 + $3 * 1000000
        UNION ALL
        SELECT label_set_id FROM runs WHERE status IN ('claimed', 'running') AND lane <> 'graph') waiting
      JOIN label_sets s ON s.label_set_id = waiting.label_set_id
     WHERE {label_set_is_claimable}
     LIMIT 100)
