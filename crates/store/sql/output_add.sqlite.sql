-- Differs: how rows are read out of JSON.
INSERT INTO {ops}.job_outputs (
    job_id, task_id, name, path, size_bytes, sha256, url, made_by, agent_id)
SELECT
    json_extract(value, '$.job_id'), json_extract(value, '$.task_id'), json_extract(value, '$.name'),
    json_extract(value, '$.path'), json_extract(value, '$.size_bytes'), json_extract(value, '$.sha256'),
    json_extract(value, '$.url'), json_extract(value, '$.made_by'), json_extract(value, '$.agent_id')
  FROM json_each($1)
 WHERE true
    ON CONFLICT DO NOTHING
