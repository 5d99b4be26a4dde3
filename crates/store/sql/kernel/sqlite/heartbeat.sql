-- Leases of runs, and heartbeats of worker processes.

-- name: run_lease_read
-- The run's lease, and whether the caller ($2 worker, $3 epoch) holds it.
SELECT r.status, r.epoch, r.lease_until, r.lease_secs, r.stalled_at, r.cancel_requested_at,
       {caller_holds_run} AS is_held
  FROM (SELECT $1 AS run_id, $2 AS worker, $3 AS epoch) caller
  JOIN runs r ON r.run_id = caller.run_id

-- name: run_lease_start
-- Moves a claimed run to running. A registered worker stops the command itself and reports it: its deadline includes
-- the time for that.
UPDATE runs
   SET status = 'running', updated_at = $2, lease_until = $2 + coalesce(lease_secs, {lease_secs}) * 1000000,
       deadline_at = $2 + (timeout_secs + iif(worker_id IS NULL, 0, {cancel_grace_secs})) * 1000000
 WHERE run_id = $1 AND status = 'claimed'

-- name: run_lease_extend
-- $3: whether the caller promises further heartbeats. From then on, silence means that the worker is lost.
UPDATE runs
   SET lease_until = $2 + coalesce(lease_secs, {lease_secs}) * 1000000, stalled_at = NULL,
       lease_secs = iif($3, coalesce(lease_secs, {lease_secs}), lease_secs), updated_at = $2
 WHERE run_id = $1
RETURNING lease_until

-- name: run_stall
-- Marks a running run whose worker is silent and has promised no heartbeats. The run stays with its worker (ADR 24).
UPDATE runs SET stalled_at = $2, lease_until = NULL, updated_at = $2 WHERE run_id = $1

-- name: run_stall_notice
INSERT INTO run_notices (run_id) VALUES ($1) ON CONFLICT DO NOTHING

-- name: worker_register
INSERT INTO workers (worker_id, name, host, pid, labels, version, started_at, beat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
ON CONFLICT (worker_id) DO NOTHING

-- name: worker_beat
UPDATE workers SET beat_at = max(beat_at, $2) WHERE worker_id = $1 AND ended_at IS NULL

-- name: worker_beat_extend
-- Renews a lease when a fifth of it is over: a heartbeat every few seconds need not rewrite every run.
UPDATE runs SET lease_until = $3 + lease_secs * 1000000, updated_at = $3
 WHERE run_id = $1 AND worker_id = $2 AND status IN ('claimed', 'running')
   AND lease_until < $3 + lease_secs * 800000

-- name: worker_beat_run
SELECT status IN ('claimed', 'running') AND worker_id IS $2 AS held,
       cancel_requested_at IS NOT NULL AS cancel_requested, lease_until
  FROM runs WHERE run_id = $1

-- name: worker_is_draining
SELECT EXISTS (SELECT 1 FROM workers WHERE worker_id = $1 AND ended_at IS NULL AND draining)

-- name: worker_retire
UPDATE workers SET ended_at = $2, end_cause = 'stopped' WHERE worker_id = $1 AND ended_at IS NULL
