-- Differs: how rows are read out of JSON.
INSERT INTO {ops}.job_needs (
    job_id, needs)
SELECT
    u.job_id, u.needs
  FROM jsonb_to_recordset($1) AS u (
    job_id text, needs text)
