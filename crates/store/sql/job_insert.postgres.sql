-- Differs: how rows are read out of JSON.
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
