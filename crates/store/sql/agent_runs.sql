-- The runs that go on, of which jobs left something that this agent alone has.
SELECT DISTINCT j.run_id AS value
  FROM {ops}.job_outputs o JOIN {ops}.jobs j ON j.job_id = o.job_id JOIN {ops}.runs r ON r.run_id = j.run_id
 WHERE o.agent_id = $1 AND o.url IS NULL AND r.finished_at IS NULL
