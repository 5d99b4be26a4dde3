-- Finds the runs that the sweeper has to decide.

-- name: sweep_dead_workers
-- Ends worker processes that have been silent for $2 seconds.
UPDATE workers SET ended_at = $1, end_cause = 'dead', waiting = 0
 WHERE ended_at IS NULL AND beat_at < $1 - $2 * 1000000

-- name: sweep_candidates
-- Runs whose attention_at has come, and runs of worker processes that have ended. is_promised: the worker has promised
-- heartbeats, by registering, by a heartbeat or by asking for a lease.
SELECT r.run_id, r.cancel_deadline_at, r.worker_id IS NOT NULL OR r.lease_secs IS NOT NULL AS is_promised,
       (SELECT w.end_cause FROM workers w WHERE w.worker_id = r.worker_id) AS worker_end
  FROM runs r WHERE r.run_id IN (
       SELECT a.run_id FROM (
           SELECT run_id FROM runs WHERE attention_at <= $1 ORDER BY attention_at LIMIT +$2) a
        UNION ALL
       SELECT d.run_id FROM (
           SELECT h.run_id FROM workers w CROSS JOIN runs h ON h.claimed_by = w.name
              AND h.worker_id = w.worker_id AND h.status IN ('claimed', 'running')
            WHERE w.ended_at IS NOT NULL LIMIT +$2) d)
 ORDER BY r.run_id

-- name: sweep_output_tail
-- The last log lines of a run, the newest first.
SELECT substr(message, 1, 1000) FROM run_events WHERE run_id = $1 AND kind = 'log'
 ORDER BY seq DESC LIMIT 20
