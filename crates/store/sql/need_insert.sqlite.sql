-- Differs: how rows are read out of JSON.
INSERT INTO {ops}.job_needs (
    job_id, needs)
SELECT
    json_extract(value, '$.job_id'), json_extract(value, '$.needs')
  FROM json_each($1)
