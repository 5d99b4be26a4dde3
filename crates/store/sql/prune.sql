-- Removes old rows, step by step.

-- name: prune_runs
-- The runs that ended first. Runs are removed while those before them have fewer than $3 events. A run with more is
-- removed too, and its events follow step by step.
DELETE FROM {ops}.runs WHERE run_id IN (
    SELECT told.run_id FROM (
        SELECT old.run_id, sum(old.events) OVER (ORDER BY old.finished_at, old.run_id) - old.events AS events_before
          FROM (SELECT r.run_id, r.finished_at, (SELECT coalesce(max(e.seq), 0) FROM {ops}.run_events e
                                                  WHERE e.run_id = r.run_id) AS events
                  FROM {ops}.runs r
                 -- Two bounds are a range, of which the planner expects few rows.
                 WHERE r.finished_at >= {time_first} AND r.finished_at < $1
                 ORDER BY r.finished_at LIMIT $2) old) told
     WHERE told.events_before < $3)
RETURNING run_id AS value

-- name: prune_left
-- A removed run of which a part is left: events or jobs. A new run may have its id meanwhile if no events are left.
SELECT d.run_id AS value FROM {ops}.removed_runs d
 WHERE d.part = $1 AND NOT EXISTS (SELECT 1 FROM {ops}.runs r WHERE r.run_id = d.run_id)
 ORDER BY d.run_id LIMIT 1

-- name: prune_left_done
DELETE FROM {ops}.removed_runs WHERE part = $1 AND run_id = $2

-- name: prune_steps (postgres)
-- Removes the steps of a removed run, at most four, and returns the number of their events. SQLite keeps all events in
-- one table.
WITH removed AS (DELETE FROM {ops}.run_steps WHERE run_id = $1 RETURNING step)
SELECT count(*) + count(*) FILTER (WHERE step IN ('S', 'F')) AS value FROM removed

-- name: prune_events (postgres)
-- Removes at most $2 events of a removed run, the oldest first.
-- Differs: on SQLite, events are numbered without gaps, and the steps of the run are among them.
DELETE FROM {ops}.run_log
 WHERE run_id = $1
   AND seq < (SELECT min(e.seq) FROM {ops}.run_log e WHERE e.run_id = $1) + $2

-- name: prune_events (sqlite)
DELETE FROM run_events
 WHERE run_id = $1
   AND seq < (SELECT min(e.seq) FROM run_events e WHERE e.run_id = $1) + $2

-- name: prune_artifacts
DELETE FROM {ops}.artifacts WHERE run_id = $1

-- name: prune_workers
-- The sweeper needs an ended worker as long as a run may name it.
DELETE FROM {ops}.workers
 WHERE ended_at < $1
   AND NOT EXISTS (SELECT 1 FROM {ops}.runs r WHERE r.claimed_by = workers.name
                      AND r.status IN ('claimed', 'running') AND r.finished_at IS NULL)

-- name: prune_fires
DELETE FROM {ops}.schedule_fires WHERE fire_at < $1

-- name: prune_request_keys
DELETE FROM {ops}.request_keys WHERE created_at < $1

-- name: prune_hook_deliveries
DELETE FROM {ops}.hook_deliveries WHERE received_at < $1

-- name: prune_pages
DELETE FROM {ops}.pages WHERE run_id = $1

-- name: prune_worker_runs
DELETE FROM {sync}.worker_runs WHERE run_id = $1

-- name: prune_partitions
DELETE FROM {sync}.partition_progress WHERE run_id = $1

-- name: prune_sync
DELETE FROM {sync}.run_metadata WHERE run_id = $1

-- name: prune_alerts
DELETE FROM {ops}.alerts
 WHERE alert_id IN (SELECT a.alert_id FROM {ops}.alerts a
                     WHERE coalesce(a.last_at, a.created_at) < $1 ORDER BY a.alert_id LIMIT $2)

-- name: prune_deliveries
DELETE FROM {ops}.deliveries
 WHERE delivery_id IN (SELECT d.delivery_id FROM {ops}.deliveries d WHERE d.created_at < $1 LIMIT $2)

-- name: prune_sessions
DELETE FROM {ops}.sessions
 WHERE hash IN (SELECT s.hash FROM {ops}.sessions s WHERE s.expires_at <= $1 ORDER BY s.expires_at LIMIT $2)

-- name: prune_tokens
DELETE FROM {ops}.tokens
 WHERE token_id IN (SELECT t.token_id FROM {ops}.tokens t WHERE t.revoked_at < $1 OR t.expires_at < $1 LIMIT $2)

-- name: prune_graph
DELETE FROM {ops}.graphs WHERE run_id = $1

-- name: prune_jobs_next
-- The next jobs of a run to remove, at most $2, while those before them have fewer than $3 output files. A job with
-- more is removed too, as a whole: a part of its outputs cannot be reused.
SELECT told.job_id AS value FROM (
    SELECT part.job_id, sum(part.files) OVER (ORDER BY part.position) - part.files AS files_before
      FROM (SELECT j.job_id, j.position, (SELECT CAST(count(*) AS integer) FROM {ops}.job_outputs o
                                           WHERE o.job_id = j.job_id) AS files
              FROM {ops}.jobs j WHERE j.run_id = $1 ORDER BY j.position LIMIT $2) part) told
 WHERE told.files_before < $3

-- name: prune_task_logs
-- Removes at most $2 log chunks of the tasks of a run.
DELETE FROM {ops}.task_logs
 WHERE (task_id, seq) IN (SELECT l.task_id, l.seq
                            FROM {ops}.jobs j JOIN {ops}.tasks t ON t.job_id = j.job_id
                            JOIN {ops}.task_logs l ON l.task_id = t.task_id
                           WHERE j.run_id = $1 LIMIT $2)

-- name: prune_tasks (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
DELETE FROM {ops}.tasks WHERE job_id = ANY ($1)

-- name: prune_tasks (sqlite)
DELETE FROM {ops}.tasks WHERE job_id IN (SELECT value FROM json_each($1))

-- name: prune_job_outputs (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
DELETE FROM {ops}.job_outputs WHERE job_id = ANY ($1)

-- name: prune_job_outputs (sqlite)
DELETE FROM {ops}.job_outputs WHERE job_id IN (SELECT value FROM json_each($1))

-- name: prune_job_events (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
DELETE FROM {ops}.job_events WHERE job_id = ANY ($1)

-- name: prune_job_events (sqlite)
DELETE FROM {ops}.job_events WHERE job_id IN (SELECT value FROM json_each($1))

-- name: prune_job_needs (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
DELETE FROM {ops}.job_needs WHERE job_id = ANY ($1)

-- name: prune_job_needs (sqlite)
DELETE FROM {ops}.job_needs WHERE job_id IN (SELECT value FROM json_each($1))

-- name: prune_jobs (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
DELETE FROM {ops}.jobs WHERE job_id = ANY ($1)

-- name: prune_jobs (sqlite)
DELETE FROM {ops}.jobs WHERE job_id IN (SELECT value FROM json_each($1))

-- name: prune_agents
DELETE FROM {ops}.agents
 WHERE seen_at < $1 AND NOT EXISTS (SELECT 1 FROM {ops}.tasks t WHERE t.agent_id = agents.agent_id AND t.active)
