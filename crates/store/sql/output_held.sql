-- Who has what jobs left and no store has; nobody, where the agent was forgotten or has removed it.
SELECT DISTINCT d.job_id, d.name AS job, a.agent_id, a.name AS agent
  FROM {ops}.jobs d JOIN {ops}.job_outputs o ON o.job_id = d.job_id AND o.task_id = d.task_id
  LEFT JOIN {ops}.agents a ON a.agent_id = o.agent_id AND a.forgotten_at IS NULL
 WHERE d.job_id {in} $1 {ni} AND o.url IS NULL
