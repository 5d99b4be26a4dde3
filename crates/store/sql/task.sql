-- Tasks of jobs and their logs.

-- fragment: task_columns
-- The columns of a task `t`.
t.task_id, t.job_id, t.kind, t.number, t.agent_id, t.cancels, t.active, t.stage, t.stage_at, t.result, t.end_cause,
t.unknown, t.log_bytes, t.created_at, t.ended_at

-- fragment: live_task_columns
-- The columns of a task `t` that the controller needs, and of the task `r` that it cancels. keeps: only the agent has
-- the outputs of the task.
t.task_id, t.job_id, t.kind, t.number, t.agent_id, t.cancels, t.stage, t.result, r.stage AS cancelled_stage,
r.result IS NOT NULL AS cancelled_over,
t.result IS NOT NULL AND EXISTS (SELECT 1 FROM {ops}.job_outputs o
                                  WHERE o.job_id = t.job_id AND o.task_id = t.task_id AND o.url IS NULL) AS keeps

-- name: task_add (postgres)
-- Differs: the rows of a JSON list are read with jsonb_to_recordset on PostgreSQL and with json_extract on SQLite.
INSERT INTO {ops}.tasks (
    task_id, job_id, run_id, kind, number, agent_id, cancels, created_at)
SELECT
    u.task_id, u.job_id, u.run_id, u.kind, u.number, u.agent_id, u.cancels, u.created_at
  FROM jsonb_to_recordset($1) AS u (
    task_id text, job_id text, run_id text, kind text, number integer, agent_id uuid, cancels text, created_at
    timestamptz)

-- name: task_add (sqlite)
INSERT INTO {ops}.tasks (
    task_id, job_id, run_id, kind, number, agent_id, cancels, created_at)
SELECT
    json_extract(value, '$.task_id'), json_extract(value, '$.job_id'), json_extract(value, '$.run_id'),
    json_extract(value, '$.kind'), json_extract(value, '$.number'), json_extract(value, '$.agent_id'),
    json_extract(value, '$.cancels'), json_extract(value, '$.created_at')
  FROM json_each($1)

-- name: task_end (postgres)
-- Compare-and-swap on the reports of the agent: the caller counts the tasks that were ended.
-- Differs: the rows of a JSON list are read with jsonb_to_recordset on PostgreSQL and with json_extract on SQLite.
UPDATE {ops}.tasks AS t SET active = false, end_cause = u.end_cause, ended_at = $2
  FROM jsonb_to_recordset($1) AS u (task_id text, end_cause text, believes text)
 WHERE t.task_id = u.task_id AND t.active
   AND (u.believes = 'anything' OR t.result IS NULL) AND (u.believes <> 'untouched' OR t.stage IS NULL)

-- name: task_end (sqlite)
UPDATE {ops}.tasks AS t SET active = 0, end_cause = u.end_cause, ended_at = $2
  FROM (SELECT json_extract(value, '$.task_id') AS task_id, json_extract(value, '$.end_cause') AS end_cause,
               json_extract(value, '$.believes') AS believes FROM json_each($1)) AS u
 WHERE t.task_id = u.task_id AND t.active
   AND (u.believes = 'anything' OR t.result IS NULL) AND (u.believes <> 'untouched' OR t.stage IS NULL)

-- name: task_get
SELECT {task_columns}
  FROM {ops}.tasks t WHERE t.task_id = $1

-- name: task_lock (postgres)
-- Differs: SQLite has one writer at a time and needs no row locks.
SELECT {task_columns}
  FROM {ops}.tasks t WHERE t.task_id = $1 FOR NO KEY UPDATE

-- name: task_lock (sqlite)
SELECT {task_columns}
  FROM {ops}.tasks t WHERE t.task_id = $1

-- name: task_list
SELECT {task_columns}
  FROM {ops}.tasks t WHERE t.job_id = $1 ORDER BY t.number, t.kind DESC LIMIT 2000

-- name: task_active
-- All active tasks, and for a cancel also the task that it cancels.
SELECT {live_task_columns}
  FROM {ops}.tasks t LEFT JOIN {ops}.tasks r ON r.task_id = t.cancels
 WHERE t.active

-- name: task_active_of_jobs (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT {live_task_columns}
  FROM {ops}.tasks t LEFT JOIN {ops}.tasks r ON r.task_id = t.cancels
 WHERE t.active AND t.job_id = ANY ($1)

-- name: task_active_of_jobs (sqlite)
SELECT {live_task_columns}
  FROM {ops}.tasks t LEFT JOIN {ops}.tasks r ON r.task_id = t.cancels
 WHERE t.active AND t.job_id IN (SELECT value FROM json_each($1))

-- name: task_held
SELECT task_id, kind, stage FROM {ops}.tasks WHERE agent_id = $1 AND active AND result IS NULL

-- name: task_orders (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT t.task_id, t.kind, t.job_id, t.cancels, t.number, j.run_id, j.project_id, j.workspace, j.spec
  FROM {ops}.tasks t JOIN {ops}.jobs j ON j.job_id = t.job_id
 WHERE t.agent_id = $1 AND t.active AND t.result IS NULL AND NOT t.task_id = ANY ($2)
 ORDER BY t.kind, t.created_at, t.task_id LIMIT $3

-- name: task_orders (sqlite)
SELECT t.task_id, t.kind, t.job_id, t.cancels, t.number, j.run_id, j.project_id, j.workspace, j.spec
  FROM {ops}.tasks t JOIN {ops}.jobs j ON j.job_id = t.job_id
 WHERE t.agent_id = $1 AND t.active AND t.result IS NULL AND NOT t.task_id IN (SELECT value FROM json_each($2))
 ORDER BY t.kind, t.created_at, t.task_id LIMIT $3

-- name: task_inputs
-- The outputs of the jobs that a job needs.
SELECT o.made_by, d.name AS job, o.agent_id, o.name, o.path, o.size_bytes, o.sha256, o.url
  FROM {ops}.job_needs n JOIN {ops}.jobs d ON d.job_id = n.needs
  JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
 WHERE n.job_id = $1 ORDER BY d.position, o.name, o.path

-- name: task_stage
UPDATE {ops}.tasks SET stage = $2, stage_at = coalesce($3, {now}) WHERE task_id = $1

-- name: task_result
UPDATE {ops}.tasks SET result = $2, result_at = coalesce($3, {now}), unknown = $4 WHERE task_id = $1

-- name: task_logged
UPDATE {ops}.tasks SET log_bytes = log_bytes + $2 WHERE task_id = $1

-- name: task_standing
SELECT coalesce(sum(CASE WHEN kind = 'RUNJOB' THEN 1 ELSE 0 END), 0) AS running,
       coalesce(sum(CASE WHEN kind = 'CANCELJOB' THEN 1 ELSE 0 END), 0) AS stopping FROM {ops}.tasks WHERE active

-- name: log_add
INSERT INTO {ops}.task_logs (task_id, seq, lines, bytes, at) VALUES ($1, $2, $3, $4, coalesce($5, {now}))
ON CONFLICT DO NOTHING

-- name: log_list
SELECT seq, lines FROM {ops}.task_logs WHERE task_id = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: log_tail
SELECT seq, lines FROM {ops}.task_logs WHERE task_id = $1 ORDER BY seq DESC LIMIT $2
