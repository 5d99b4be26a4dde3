-- Differs: how rows are read out of JSON.
INSERT INTO {ops}.job_outputs (
    job_id, task_id, name, path, size_bytes, sha256, url, made_by, agent_id)
SELECT
    u.job_id, u.task_id, u.name, u.path, u.size_bytes, u.sha256, u.url, u.made_by, u.agent_id
  FROM jsonb_to_recordset($1) AS u (
    job_id text, task_id text, name text, path text, size_bytes bigint, sha256 text, url text, made_by text,
    agent_id uuid)
    ON CONFLICT DO NOTHING
