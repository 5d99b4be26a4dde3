-- Differs: how rows are read out of JSON.
-- A job that is not where its writer believes is left as it is; the writer counts. Jobs are locked in the order of
-- their ids, as everywhere (ARCHITECTURE.md, "Lock order").
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
