-- Output files of jobs.

-- name: output_add (postgres)
-- Differs: the rows of a JSON list are read with jsonb_to_recordset on PostgreSQL and with json_extract on SQLite.
INSERT INTO {ops}.job_outputs (
    job_id, task_id, name, path, size_bytes, sha256, url, made_by, agent_id)
SELECT
    u.job_id, u.task_id, u.name, u.path, u.size_bytes, u.sha256, u.url, u.made_by, u.agent_id
  FROM jsonb_to_recordset($1) AS u (
    job_id text, task_id text, name text, path text, size_bytes bigint, sha256 text, url text, made_by text,
    agent_id uuid)
    ON CONFLICT DO NOTHING

-- name: output_add (sqlite)
INSERT INTO {ops}.job_outputs (
    job_id, task_id, name, path, size_bytes, sha256, url, made_by, agent_id)
SELECT
    json_extract(value, '$.job_id'), json_extract(value, '$.task_id'), json_extract(value, '$.name'),
    json_extract(value, '$.path'), json_extract(value, '$.size_bytes'), json_extract(value, '$.sha256'),
    json_extract(value, '$.url'), json_extract(value, '$.made_by'), json_extract(value, '$.agent_id')
  FROM json_each($1)
 WHERE true
    ON CONFLICT DO NOTHING

-- name: output_copy
-- Copies the outputs of a job whose result is reused.
INSERT INTO {ops}.job_outputs (job_id, task_id, name, path, size_bytes, sha256, url, made_by, agent_id)
SELECT j.job_id, o.task_id, o.name, o.path, o.size_bytes, o.sha256, o.url, o.made_by, o.agent_id
  FROM {ops}.jobs j JOIN {ops}.job_outputs o ON o.job_id = j.reused_from AND o.task_id = j.task_id
 WHERE j.run_id = $1 AND j.reused_from IS NOT NULL

-- name: output_list
SELECT o.made_by, d.name AS job, o.agent_id, o.name, o.path, o.size_bytes, o.sha256, o.url
  FROM {ops}.jobs d JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
 WHERE d.job_id = $1 AND d.code IN ('succeeded', 'nonzero_exit', 'unmatched_patterns') ORDER BY o.name, o.path

-- name: output_held (postgres)
-- The agents that alone have outputs of these jobs. NULL if the agent was forgotten or has removed them.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT DISTINCT d.job_id, d.name AS job, a.agent_id, a.name AS agent
  FROM {ops}.jobs d JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
  LEFT JOIN {ops}.agents a ON a.agent_id = o.agent_id AND a.forgotten_at IS NULL
 WHERE d.job_id = ANY ($1) AND o.url IS NULL

-- name: output_held (sqlite)
SELECT DISTINCT d.job_id, d.name AS job, a.agent_id, a.name AS agent
  FROM {ops}.jobs d JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
  LEFT JOIN {ops}.agents a ON a.agent_id = o.agent_id AND a.forgotten_at IS NULL
 WHERE d.job_id IN (SELECT value FROM json_each($1)) AND o.url IS NULL

-- name: output_uses (postgres)
-- For jobs whose outputs an agent keeps: whether an unfinished run needs them, and when the last run that used them
-- ended. A job without a report yet is known by its task.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT u.value AS job_id,
       EXISTS (SELECT 1 FROM {ops}.tasks t JOIN {ops}.runs r ON r.run_id = t.run_id
                WHERE t.job_id = u.value AND t.agent_id = $1 AND r.finished_at IS NULL)
       OR EXISTS (SELECT 1 FROM {ops}.job_outputs o JOIN {ops}.jobs j ON j.job_id = o.job_id
                    JOIN {ops}.runs r ON r.run_id = j.run_id
                   WHERE o.agent_id = $1 AND o.made_by = u.value AND r.finished_at IS NULL) AS needed,
       (SELECT max(r.finished_at) FROM {ops}.job_outputs o JOIN {ops}.jobs j ON j.job_id = o.job_id
          JOIN {ops}.runs r ON r.run_id = j.run_id
         WHERE o.agent_id = $1 AND o.made_by = u.value) AS used_at
  FROM unnest($2::text[]) AS u (value)

-- name: output_uses (sqlite)
SELECT u.value AS job_id,
       EXISTS (SELECT 1 FROM {ops}.tasks t JOIN {ops}.runs r ON r.run_id = t.run_id
                WHERE t.job_id = u.value AND t.agent_id = $1 AND r.finished_at IS NULL)
       OR EXISTS (SELECT 1 FROM {ops}.job_outputs o JOIN {ops}.jobs j ON j.job_id = o.job_id
                    JOIN {ops}.runs r ON r.run_id = j.run_id
                   WHERE o.agent_id = $1 AND o.made_by = u.value AND r.finished_at IS NULL) AS needed,
       (SELECT max(r.finished_at) FROM {ops}.job_outputs o JOIN {ops}.jobs j ON j.job_id = o.job_id
          JOIN {ops}.runs r ON r.run_id = j.run_id
         WHERE o.agent_id = $1 AND o.made_by = u.value) AS used_at
  FROM json_each($2) AS u

-- name: output_let_go (postgres)
-- From now on, no task fetches the outputs of these jobs from this agent.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
UPDATE {ops}.job_outputs SET agent_id = NULL WHERE agent_id = $1 AND made_by = ANY ($2)

-- name: output_let_go (sqlite)
UPDATE {ops}.job_outputs SET agent_id = NULL WHERE agent_id = $1 AND made_by IN (SELECT value FROM json_each($2))
