-- Claims runs from every label set that fits: the highest priority first, then the oldest.

-- name: claim_precheck
-- Whether an earlier request with this id claimed runs, whether the worker has ended or is draining, and whether a
-- delayed run has become available.
SELECT iif($2 IS NULL, 0, EXISTS (SELECT 1 FROM runs WHERE claimed_by = $1 AND claim_request = $2
                                     AND status IN ('claimed', 'running'))) AS is_repeat,
       (SELECT iif(ended_at IS NOT NULL, 'ended', iif(draining, 'draining', NULL))
          FROM workers WHERE worker_id = $3) AS worker_state,
       EXISTS (SELECT 1 FROM runs WHERE gate = 'time' AND available_at <= $4) AS any_due

-- name: claim_repeat
-- The runs that an earlier request with the same id claimed.
SELECT run_id, project_id, env_id, git_sha, git_ref, metadata, epoch, attempt, timeout_secs,
       lease_until, kind, priority, ready_at
  FROM runs WHERE claimed_by = $1 AND claim_request = $2 AND status IN ('claimed', 'running')

-- name: claim_runs
-- `ahead` merges the label sets in order. It starts with the first run of every label set that fits; each run that it
-- yields adds the next run of the same label set. So it reads only the runs that it claims, with one search in
-- `runs_ready` each. Pauses and labels are checked once per label set: runs behind them cost nothing.
--
-- `LIMIT +$3`: SQLite compiles a statement again whenever a bare parameter of LIMIT is bound, which takes ten times as
-- long as the claim.
WITH RECURSIVE fitting (label_set_id) AS (
    SELECT s.label_set_id FROM label_sets s WHERE {label_set_is_claimable}),
ahead (label_set_id, priority, ready_at, run_id) AS (
    SELECT r.label_set_id, r.priority, r.ready_at, r.run_id
      FROM fitting s CROSS JOIN runs r ON r.run_id =
           (SELECT h.run_id FROM runs h WHERE h.label_set_id = s.label_set_id AND h.gate = 'open'
             ORDER BY h.priority DESC, h.ready_at, h.run_id LIMIT 1)
     UNION ALL
    SELECT r.label_set_id, r.priority, r.ready_at, r.run_id
      FROM ahead a CROSS JOIN runs r ON r.run_id = coalesce(
           (SELECT n.run_id FROM runs n WHERE n.label_set_id = a.label_set_id AND n.gate = 'open'
               AND n.priority = a.priority AND n.ready_at = a.ready_at AND n.run_id > a.run_id
             ORDER BY n.run_id LIMIT 1),
           (SELECT n.run_id FROM runs n WHERE n.label_set_id = a.label_set_id AND n.gate = 'open'
               AND n.priority = a.priority AND n.ready_at > a.ready_at
             ORDER BY n.ready_at, n.run_id LIMIT 1),
           (SELECT n.run_id FROM runs n WHERE n.label_set_id = a.label_set_id AND n.gate = 'open'
               AND n.priority < a.priority
             ORDER BY n.priority DESC, n.ready_at, n.run_id LIMIT 1))
     ORDER BY 2 DESC, 3, 4 LIMIT +$3)
UPDATE runs
   SET status = 'claimed', gate = NULL, claimed_by = $5, worker_id = $6, claim_request = $7,
       epoch = min(epoch, 2147483646) + 1, started_at = $4, updated_at = $4,
       -- NULL if the worker has promised no heartbeats: the sweeper does not fail such a run for silence (ADR 24).
       lease_secs = iif($6 IS NULL, $8, coalesce($8, {lease_secs})),
       lease_until = $4 + coalesce($8, {lease_secs}) * 1000000
 WHERE run_id IN (SELECT a.run_id FROM ahead a)
RETURNING run_id, project_id, env_id, git_sha, git_ref, metadata, epoch, attempt, timeout_secs,
          lease_until, kind, priority, ready_at
