-- Differs: how rows are read out of JSON.
INSERT INTO {ops}.tasks (
    task_id, job_id, run_id, kind, number, agent_id, cancels, created_at)
SELECT
    json_extract(value, '$.task_id'), json_extract(value, '$.job_id'), json_extract(value, '$.run_id'),
    json_extract(value, '$.kind'), json_extract(value, '$.number'), json_extract(value, '$.agent_id'),
    json_extract(value, '$.cancels'), json_extract(value, '$.created_at')
  FROM json_each($1)
