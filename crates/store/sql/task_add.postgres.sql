-- Differs: how rows are read out of JSON.
INSERT INTO {ops}.tasks (
    task_id, job_id, run_id, kind, number, agent_id, cancels, created_at)
SELECT
    u.task_id, u.job_id, u.run_id, u.kind, u.number, u.agent_id, u.cancels, u.created_at
  FROM jsonb_to_recordset($1) AS u (
    task_id text, job_id text, run_id text, kind text, number integer, agent_id uuid, cancels text, created_at
    timestamptz)
