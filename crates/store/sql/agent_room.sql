-- How much room the jobs take that agents have: those that run, and those of which something may still run.
SELECT agent_id, sum(weight) AS used FROM {ops}.jobs
 WHERE (ended_at IS NULL OR stopping) AND agent_id IS NOT NULL AND (stopping OR code {in} $1 {ni})
 GROUP BY agent_id
