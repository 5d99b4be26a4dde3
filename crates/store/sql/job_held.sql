SELECT j.job_id, j.run_id, j.position, j.project_id, j.workspace, j.name, j.requested, j.reused_from,
       j.weight, j.pool, j.code,
       j.message, j.errors, j.failures, j.not_before, j.task_number, j.task_id, j.agent_id, j.exit_code,
       j.stopping,
       j.version, j.created_at, j.started_at, j.ended_at, j.updated_at, j.cancelled_at, j.cancelled_by
  FROM {ops}.jobs j
 WHERE (j.ended_at IS NULL OR j.stopping) AND j.agent_id IS NOT NULL AND (j.stopping OR j.code {in} $1 {ni})
   AND ($2 IS NULL OR j.project_id = $2)
 ORDER BY j.agent_id, j.run_id, j.position LIMIT $3
