-- Graphs, their runs, and the changes that the controller has to read.

-- name: graph_add
INSERT INTO {ops}.graphs (run_id, project_id, name, workspace, digest, only_jobs, rerun_needed,
       submitted_by, created_at)
SELECT r.run_id, $2, $3, $4, $5, $6, $7, $8, r.created_at FROM {ops}.runs r WHERE r.run_id = $1

-- name: graph_get
SELECT g.run_id, g.project_id, g.name, g.workspace, g.digest, g.only_jobs, g.rerun_needed, g.submitted_by,
       g.cancelled_by, g.created_at, r.status, r.retry_of, r.started_at, r.finished_at
  FROM {ops}.graphs g JOIN {ops}.runs r ON r.run_id = g.run_id WHERE g.run_id = $1

-- name: graph_counts
SELECT code, reused_from IS NOT NULL AS reused, count(*) AS jobs, max(version) AS version
  FROM {ops}.jobs WHERE run_id = $1 GROUP BY code, reused_from IS NOT NULL

-- name: graph_cancel
UPDATE {ops}.graphs SET cancelled_at = coalesce($4, {now}), cancelled_by = $2, cancel_reason = $3
 WHERE run_id = $1 AND cancelled_at IS NULL

-- name: graph_ends
-- The jobs that did not succeed, for the message at the end of a run. Jobs that failed themselves come first.
SELECT job_id, name, code, message FROM {ops}.jobs
 WHERE run_id = $1 AND code <> 'succeeded'
 ORDER BY CASE code WHEN 'dependency_failed' THEN 2 WHEN 'cancelled_by_user' THEN 1 ELSE 0 END, position LIMIT $2

-- name: graph_note
-- The caller has locked the run, so that the next number is free. The database derives the event id from it.
INSERT INTO {ops}.run_events (run_id, seq, kind, level, message, created_at)
SELECT $1, coalesce(max(e.seq), 0) + 1, 'request', $2, $3, coalesce($4, {now})
  FROM {ops}.run_events e WHERE e.run_id = $1

-- name: graph_run
-- No worker claims a graph: its gate never opens.
UPDATE {ops}.runs SET lane = 'graph', gate = 'key' WHERE run_id = $1 AND status = 'queued'

-- name: graph_run_follow
UPDATE {ops}.runs SET retry_of = $2, attempt = $3 WHERE run_id = $1

-- name: graph_run_take
-- The run starts with its first job. RUN_GO and RUN_UNLEASE follow.
UPDATE {ops}.runs
   SET status = 'claimed', gate = NULL, claimed_by = $2, epoch = epoch + 1, started_at = $3,
       lease_secs = {lease_secs}, lease_until = $4, updated_at = $3
 WHERE run_id = $1 AND lane = 'graph' AND status = 'queued'

-- name: graph_run_end (postgres)
-- The run ends with its last job.
-- Differs: JSON objects are merged with || on PostgreSQL and with json_patch on SQLite.
UPDATE {ops}.runs
   SET status = $2, end_cause = $3, finished_at = $5, updated_at = $5, gate = NULL,
       input = coalesce(input, metadata), metadata = metadata || $4
 WHERE run_id = $1 AND lane = 'graph' AND status IN ('queued', 'running')

-- name: graph_run_end (sqlite)
UPDATE {ops}.runs
   SET status = $2, end_cause = $3, finished_at = $5, updated_at = $5, gate = NULL,
       input = coalesce(input, metadata), metadata = json_patch(metadata, $4)
 WHERE run_id = $1 AND lane = 'graph' AND status IN ('queued', 'running')

-- name: graph_run_states (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT run_id, status FROM {ops}.runs WHERE run_id = ANY ($1)

-- name: graph_run_states (sqlite)
SELECT run_id, status FROM {ops}.runs WHERE run_id IN (SELECT value FROM json_each($1))

-- name: graph_run_open
-- Unfinished runs of graphs whose jobs have all ended: a plain SQL statement ended them, not the controller. Reads the
-- indexes of held runs and of runs that wait for a key (a graph has none). An index of its own would cost every step of
-- every run.
SELECT r.run_id AS value FROM {ops}.runs r JOIN {ops}.graphs g ON g.run_id = r.run_id
 WHERE r.lane = 'graph' AND r.claimed_by >= '' AND r.finished_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM {ops}.jobs j WHERE j.run_id = r.run_id AND j.ended_at IS NULL)
 UNION ALL
SELECT r.run_id FROM {ops}.projects p
  JOIN {ops}.runs r ON r.project_id = p.project_id AND r.concurrency_key IS NULL AND r.gate = 'key'
  JOIN {ops}.graphs g ON g.run_id = r.run_id
 WHERE r.lane = 'graph'
   AND NOT EXISTS (SELECT 1 FROM {ops}.jobs j WHERE j.run_id = r.run_id AND j.ended_at IS NULL)
 LIMIT $1

-- name: change_put
INSERT INTO {ops}.job_changes AS c (subject, version) VALUES ($1, 1)
ON CONFLICT (subject) DO UPDATE SET version = c.version + 1

-- name: change_list
SELECT subject, version FROM {ops}.job_changes ORDER BY subject LIMIT $1

-- name: change_seen (postgres)
-- Keeps changes that were made again meanwhile: their version is higher.
-- Differs: the rows of a JSON list are read with jsonb_to_recordset on PostgreSQL and with json_extract on SQLite.
DELETE FROM {ops}.job_changes AS c USING jsonb_to_recordset($1) AS u (subject text, version bigint)
 WHERE c.subject = u.subject AND c.version = u.version

-- name: change_seen (sqlite)
DELETE FROM {ops}.job_changes
 WHERE (subject, version) IN (SELECT json_extract(value, '$.subject'), json_extract(value, '$.version')
                                FROM json_each($1))

-- name: marker_graphs (postgres)
-- A text per graph that changes whenever one of its jobs changes.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT u.value AS subject,
       coalesce((SELECT max(j.version) FROM {ops}.jobs j WHERE j.run_id = u.value), 0)::text AS marker
  FROM unnest($1::text[]) AS u (value)

-- name: marker_graphs (sqlite)
SELECT u.value AS subject,
       CAST(coalesce((SELECT max(j.version) FROM jobs j WHERE j.run_id = u.value), 0) AS TEXT) AS marker
  FROM json_each($1) AS u

-- name: marker_jobs (postgres)
-- A text per job that changes whenever the job, one of its tasks or the output of a task changes.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT j.job_id AS subject,
       j.version || ' ' || (SELECT count(*) || ' ' || coalesce(sum(t.log_bytes), 0)
                                   || ' ' || count(*) FILTER (WHERE t.active)
                              FROM {ops}.tasks t WHERE t.job_id = j.job_id) AS marker
  FROM {ops}.jobs j WHERE j.job_id = ANY ($1::text[])

-- name: marker_jobs (sqlite)
SELECT j.job_id AS subject,
       j.version || ' ' || (SELECT count(*) || ' ' || coalesce(sum(t.log_bytes), 0)
                                   || ' ' || count(*) FILTER (WHERE t.active)
                              FROM tasks t WHERE t.job_id = j.job_id) AS marker
  FROM jobs j WHERE j.job_id IN (SELECT value FROM json_each($1))

-- name: marker_agents (postgres)
-- A text per agent that changes whenever its identity or its open tasks change.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT a.agent_id::text AS subject,
       a.boot_id || ' ' || coalesce(a.token_id::text, '') || ' ' || coalesce(a.forgotten_at::text, '') || ' '
       || (SELECT count(*) || ' ' || coalesce(max(t.created_at)::text, '') || ' ' || coalesce(max(t.task_id), '')
             FROM {ops}.tasks t WHERE t.agent_id = a.agent_id AND t.active AND t.result IS NULL) AS marker
  FROM {ops}.agents a WHERE a.agent_id = ANY ($1::text[]::uuid[])

-- name: marker_agents (sqlite)
SELECT a.agent_id AS subject,
       a.boot_id || ' ' || coalesce(a.token_id, '') || ' ' || coalesce(a.forgotten_at, '') || ' '
       || (SELECT count(*) || ' ' || coalesce(max(t.created_at), '') || ' ' || coalesce(max(t.task_id), '')
             FROM tasks t WHERE t.agent_id = a.agent_id AND t.active AND t.result IS NULL) AS marker
  FROM agents a WHERE a.agent_id IN (SELECT value FROM json_each($1))
