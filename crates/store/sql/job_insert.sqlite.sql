-- Differs: how rows are read out of JSON.
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
