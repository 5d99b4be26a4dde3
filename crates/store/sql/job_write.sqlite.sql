-- Differs: how rows are read out of JSON.
-- A job that is not where its writer believes is left as it is; the writer counts.
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
