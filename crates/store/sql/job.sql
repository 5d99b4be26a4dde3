-- Jobs of graphs and their dependencies.

-- fragment: job_columns
-- The columns of a job `j`, as users see it.
j.job_id, j.run_id, j.position, j.project_id, j.workspace, j.name, j.requested, j.reused_from, j.weight, j.pool,
j.code, j.message, j.errors, j.failures, j.not_before, j.task_number, j.task_id, j.agent_id, j.exit_code, j.stopping,
j.version, j.created_at, j.started_at, j.ended_at, j.updated_at, j.cancelled_at, j.cancelled_by

-- fragment: live_job_columns
-- The columns of a job `j` that the controller needs.
j.job_id, j.run_id, j.position, j.project_id, j.workspace, j.name, j.labels, j.weight, j.pool, j.retries, j.lost_secs,
j.code, j.message, j.errors, j.failures, j.not_before, j.task_number, j.task_id, j.agent_id, j.exit_code, j.stopping,
j.created_at, j.started_at, j.ended_at, j.cancelled_at

-- name: job_insert (postgres)
-- Differs: the rows of a JSON list are read with jsonb_to_recordset on PostgreSQL and with json_extract on SQLite.
INSERT INTO {ops}.jobs (
    job_id, run_id, position, project_id, workspace, name, spec, requested, reused_from, labels, weight, pool,
    retries, lost_secs, code, task_number, task_id, agent_id, exit_code, created_at, ended_at, updated_at)
SELECT
    u.job_id, u.run_id, u.position, u.project_id, u.workspace, u.name, u.spec, u.requested, u.reused_from,
    ARRAY(SELECT jsonb_array_elements_text(u.labels)), u.weight, u.pool, u.retries, u.lost_secs, u.code,
    u.task_number, u.task_id, u.agent_id, u.exit_code, u.created_at, u.ended_at, u.created_at
  FROM jsonb_to_recordset($1) AS u (
    job_id text, run_id text, position integer, project_id text, workspace text, name text, spec jsonb, requested
    boolean, reused_from text, labels jsonb, weight integer, pool text, retries integer, lost_secs integer, code
    text, task_number integer, task_id text, agent_id uuid, exit_code integer, created_at timestamptz, ended_at
    timestamptz)

-- name: job_insert (sqlite)
INSERT INTO {ops}.jobs (
    job_id, run_id, position, project_id, workspace, name, spec, requested, reused_from, labels, weight, pool,
    retries, lost_secs, code, task_number, task_id, agent_id, exit_code, created_at, ended_at, updated_at)
SELECT
    json_extract(value, '$.job_id'), json_extract(value, '$.run_id'), json_extract(value, '$.position'),
    json_extract(value, '$.project_id'), json_extract(value, '$.workspace'), json_extract(value, '$.name'),
    json_extract(value, '$.spec'), json_extract(value, '$.requested'), json_extract(value, '$.reused_from'),
    json_extract(value, '$.labels'), json_extract(value, '$.weight'), json_extract(value, '$.pool'),
    json_extract(value, '$.retries'), json_extract(value, '$.lost_secs'), json_extract(value, '$.code'),
    json_extract(value, '$.task_number'), json_extract(value, '$.task_id'), json_extract(value, '$.agent_id'),
    json_extract(value, '$.exit_code'), json_extract(value, '$.created_at'), json_extract(value, '$.ended_at'),
    json_extract(value, '$.created_at')
  FROM json_each($1)

-- name: job_latest (postgres)
-- The latest job of each name in the workspace.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT j.job_id, j.name, j.code, j.task_number, j.task_id, j.agent_id, j.exit_code
  FROM unnest($3::text[]) AS u (value)
  JOIN {ops}.jobs j ON j.job_id = (SELECT k.job_id FROM {ops}.jobs k
                                    WHERE k.project_id = $1 AND k.workspace = $2 AND k.name = u.value
                                    ORDER BY k.created_at DESC, k.run_id DESC LIMIT 1)

-- name: job_latest (sqlite)
SELECT j.job_id, j.name, j.code, j.task_number, j.task_id, j.agent_id, j.exit_code
  FROM json_each($3) AS u
  JOIN {ops}.jobs j ON j.job_id = (SELECT k.job_id FROM {ops}.jobs k
                                    WHERE k.project_id = $1 AND k.workspace = $2 AND k.name = u.value
                                    ORDER BY k.created_at DESC, k.run_id DESC LIMIT 1)

-- name: job_get
SELECT {job_columns}
  FROM {ops}.jobs j WHERE j.job_id = $1

-- name: job_spec
SELECT spec FROM {ops}.jobs WHERE job_id = $1

-- name: job_specs
SELECT job_id, name, spec, code, task_number, task_id, agent_id, exit_code, requested, position FROM {ops}.jobs
 WHERE run_id = $1 ORDER BY position

-- name: job_find
SELECT job_id AS value FROM {ops}.jobs WHERE run_id = $1 AND name = $2

-- name: job_names (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT name AS value FROM {ops}.jobs WHERE run_id = $1 AND name = ANY ($2)

-- name: job_names (sqlite)
SELECT name AS value FROM {ops}.jobs WHERE run_id = $1 AND name IN (SELECT value FROM json_each($2))

-- name: job_list
SELECT {job_columns}
  FROM {ops}.jobs j WHERE j.run_id = $1 AND j.position > $2 ORDER BY j.position LIMIT $3

-- name: job_list_changed
SELECT {job_columns}
  FROM {ops}.jobs j WHERE j.run_id = $1 AND j.version > $2 ORDER BY j.version LIMIT $3

-- name: job_list_codes (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT {job_columns}
  FROM {ops}.jobs j
 WHERE j.run_id = $1 AND j.position > $2 AND j.code = ANY ($4) ORDER BY j.position LIMIT $3

-- name: job_list_codes (sqlite)
SELECT {job_columns}
  FROM {ops}.jobs j
 WHERE j.run_id = $1 AND j.position > $2 AND j.code IN (SELECT value FROM json_each($4)) ORDER BY j.position LIMIT $3

-- name: job_held (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT {job_columns}
  FROM {ops}.jobs j
 WHERE (j.ended_at IS NULL OR j.stopping) AND j.agent_id IS NOT NULL AND (j.stopping OR j.code = ANY ($1))
   AND ($2 IS NULL OR j.project_id = $2)
 ORDER BY j.agent_id, j.run_id, j.position LIMIT $3

-- name: job_held (sqlite)
SELECT {job_columns}
  FROM {ops}.jobs j
 WHERE (j.ended_at IS NULL OR j.stopping) AND j.agent_id IS NOT NULL
   AND (j.stopping OR j.code IN (SELECT value FROM json_each($1)))
   AND ($2 IS NULL OR j.project_id = $2)
 ORDER BY j.agent_id, j.run_id, j.position LIMIT $3

-- name: need_list
SELECT j.position, d.position AS needed
  FROM {ops}.jobs j
  JOIN {ops}.job_needs n ON n.job_id = j.job_id
  JOIN {ops}.jobs d ON d.job_id = n.needs
 WHERE j.run_id = $1 AND j.position > $2 AND j.position <= $3
 ORDER BY j.position, d.position

-- name: job_astray
-- Jobs that have ended while a task of them is active: a plain SQL statement ended them, not the controller.
SELECT {live_job_columns}
  FROM {ops}.tasks t JOIN {ops}.jobs j ON j.job_id = t.job_id
 WHERE t.active AND t.kind = 'RUNJOB' AND j.ended_at IS NOT NULL AND NOT j.stopping

-- name: job_live
SELECT {live_job_columns}
  FROM {ops}.jobs j WHERE j.ended_at IS NULL OR j.stopping

-- name: job_live_of_runs (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT {live_job_columns}
  FROM {ops}.jobs j WHERE j.run_id = ANY ($1) AND (j.ended_at IS NULL OR j.stopping)

-- name: job_live_of_runs (sqlite)
SELECT {live_job_columns}
  FROM {ops}.jobs j WHERE j.run_id IN (SELECT value FROM json_each($1)) AND (j.ended_at IS NULL OR j.stopping)

-- name: job_wishes (postgres)
-- Cancel requests for jobs that the controller knows, and their codes, which a plain SQL statement may have changed.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT job_id, run_id, cancelled_at IS NOT NULL AS cancelled, code FROM {ops}.jobs WHERE job_id = ANY ($1)

-- name: job_wishes (sqlite)
SELECT job_id, run_id, cancelled_at IS NOT NULL AS cancelled, code FROM {ops}.jobs
 WHERE job_id IN (SELECT value FROM json_each($1))

-- name: job_cancel
UPDATE {ops}.jobs SET cancelled_at = coalesce($3, {now}), cancelled_by = $2
 WHERE run_id = $1 AND ended_at IS NULL AND cancelled_at IS NULL

-- name: job_cancel_named (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
UPDATE {ops}.jobs SET cancelled_at = coalesce($3, {now}), cancelled_by = $2
 WHERE run_id = $1 AND name = ANY ($4) AND ended_at IS NULL AND cancelled_at IS NULL

-- name: job_cancel_named (sqlite)
UPDATE {ops}.jobs SET cancelled_at = coalesce($3, {now}), cancelled_by = $2
 WHERE run_id = $1 AND name IN (SELECT value FROM json_each($4)) AND ended_at IS NULL AND cancelled_at IS NULL

-- name: job_write (postgres)
-- Compare-and-swap on the code: the caller counts the jobs that were written. Jobs are locked in the order of their
-- ids, as everywhere (ARCHITECTURE.md, "Lock order").
-- Differs: rows are read out of JSON in different ways, and SQLite needs no row locks.
WITH locked AS MATERIALIZED (
    SELECT l.job_id FROM {ops}.jobs l
     WHERE l.job_id IN (SELECT w.job_id FROM jsonb_to_recordset($1) AS w (job_id text))
     ORDER BY l.job_id FOR NO KEY UPDATE)
UPDATE {ops}.jobs AS j SET
    code = u.code, message = u.message, errors = u.errors, failures = u.failures, not_before = u.not_before,
    task_number = u.task_number, task_id = u.task_id, agent_id = u.agent_id, exit_code = u.exit_code, stopping =
    u.stopping, started_at = u.started_at, ended_at = u.ended_at, version = u.version, updated_at = $2
  FROM jsonb_to_recordset($1) AS u (
    job_id text, from_code text, code text, message text, errors integer, failures integer, not_before
    timestamptz, task_number integer, task_id text, agent_id uuid, exit_code integer, stopping boolean,
    started_at timestamptz, ended_at timestamptz, version bigint)
 WHERE j.job_id = u.job_id AND j.code = u.from_code AND j.job_id IN (SELECT k.job_id FROM locked k)

-- name: job_write (sqlite)
UPDATE {ops}.jobs AS j SET
    code = u.code, message = u.message, errors = u.errors, failures = u.failures, not_before = u.not_before,
    task_number = u.task_number, task_id = u.task_id, agent_id = u.agent_id, exit_code = u.exit_code, stopping =
    u.stopping, started_at = u.started_at, ended_at = u.ended_at, version = u.version, updated_at = $2
  FROM (SELECT
    json_extract(value, '$.job_id') AS job_id, json_extract(value, '$.from_code') AS from_code,
    json_extract(value, '$.code') AS code, json_extract(value, '$.message') AS message, json_extract(value,
    '$.errors') AS errors, json_extract(value, '$.failures') AS failures, json_extract(value, '$.not_before') AS
    not_before, json_extract(value, '$.task_number') AS task_number, json_extract(value, '$.task_id') AS task_id,
    json_extract(value, '$.agent_id') AS agent_id, json_extract(value, '$.exit_code') AS exit_code,
    json_extract(value, '$.stopping') AS stopping, json_extract(value, '$.started_at') AS started_at,
    json_extract(value, '$.ended_at') AS ended_at, json_extract(value, '$.version') AS version
          FROM json_each($1)) AS u
 WHERE j.job_id = u.job_id AND j.code = u.from_code

-- name: job_why_next (postgres)
-- The job that tells why a graph waits: one that an agent has, else the first that could be next.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT {job_columns}
  FROM {ops}.jobs j WHERE j.run_id = $1 AND j.ended_at IS NULL
 ORDER BY CASE WHEN j.code = ANY ($2) THEN 0 WHEN j.code = 'waiting_on_dependencies' THEN 2 ELSE 1 END, j.position
 LIMIT 1

-- name: job_why_next (sqlite)
SELECT {job_columns}
  FROM {ops}.jobs j WHERE j.run_id = $1 AND j.ended_at IS NULL
 ORDER BY CASE WHEN j.code IN (SELECT value FROM json_each($2)) THEN 0
               WHEN j.code = 'waiting_on_dependencies' THEN 2 ELSE 1 END, j.position
 LIMIT 1

-- name: job_event_list
SELECT seq, from_code, to_code, message, at FROM {ops}.job_events WHERE job_id = $1 ORDER BY seq LIMIT 10000

-- name: need_insert (postgres)
-- Differs: the rows of a JSON list are read with jsonb_to_recordset on PostgreSQL and with json_extract on SQLite.
INSERT INTO {ops}.job_needs (
    job_id, needs)
SELECT
    u.job_id, u.needs
  FROM jsonb_to_recordset($1) AS u (
    job_id text, needs text)

-- name: need_insert (sqlite)
INSERT INTO {ops}.job_needs (
    job_id, needs)
SELECT
    json_extract(value, '$.job_id'), json_extract(value, '$.needs')
  FROM json_each($1)

-- name: need_live
-- Dependencies of live jobs that have not succeeded.
SELECT n.job_id, n.needs, d.name, d.code
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
 WHERE (j.ended_at IS NULL OR j.stopping) AND d.code <> 'succeeded'

-- name: need_live_of_runs (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT n.job_id, n.needs, d.name, d.code
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
 WHERE j.run_id = ANY ($1) AND (j.ended_at IS NULL OR j.stopping) AND d.code <> 'succeeded'

-- name: need_live_of_runs (sqlite)
SELECT n.job_id, n.needs, d.name, d.code
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
 WHERE j.run_id IN (SELECT value FROM json_each($1)) AND (j.ended_at IS NULL OR j.stopping) AND d.code <> 'succeeded'

-- name: need_open
SELECT d.name, d.code FROM {ops}.job_needs n JOIN {ops}.jobs d ON d.job_id = n.needs
 WHERE n.job_id = $1 AND d.code <> 'succeeded' ORDER BY d.position LIMIT 1000

-- name: need_held
-- Agents that hold the only copy of an output that a live job needs. NULL if the agent was forgotten or has removed it.
SELECT DISTINCT j.job_id, d.name AS job, a.agent_id, a.name AS agent
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
  JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
  LEFT JOIN {ops}.agents a ON a.agent_id = o.agent_id AND a.forgotten_at IS NULL
 WHERE (j.ended_at IS NULL OR j.stopping) AND d.code = 'succeeded' AND o.url IS NULL

-- name: need_held_of_runs (postgres)
-- need_held for some runs.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT DISTINCT j.job_id, d.name AS job, a.agent_id, a.name AS agent
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
  JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
  LEFT JOIN {ops}.agents a ON a.agent_id = o.agent_id AND a.forgotten_at IS NULL
 WHERE j.run_id = ANY ($1) AND (j.ended_at IS NULL OR j.stopping) AND d.code = 'succeeded' AND o.url IS NULL

-- name: need_held_of_runs (sqlite)
SELECT DISTINCT j.job_id, d.name AS job, a.agent_id, a.name AS agent
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
  JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
  LEFT JOIN {ops}.agents a ON a.agent_id = o.agent_id AND a.forgotten_at IS NULL
 WHERE j.run_id IN (SELECT value FROM json_each($1)) AND (j.ended_at IS NULL OR j.stopping) AND d.code = 'succeeded'
   AND o.url IS NULL

-- name: need_held_of_job
-- need_held for one job.
SELECT DISTINCT j.job_id, d.name AS job, a.agent_id, a.name AS agent
  FROM {ops}.jobs j JOIN {ops}.job_needs n ON n.job_id = j.job_id JOIN {ops}.jobs d ON d.job_id = n.needs
  JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
  LEFT JOIN {ops}.agents a ON a.agent_id = o.agent_id AND a.forgotten_at IS NULL
 WHERE j.job_id = $1 AND d.code = 'succeeded' AND o.url IS NULL
