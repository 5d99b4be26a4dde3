SELECT j.job_id, j.run_id, j.position, j.project_id, j.workspace, j.name, j.requested, j.reused_from,
       j.weight, j.pool, j.code,
       j.message, j.errors, j.failures, j.not_before, j.task_number, j.task_id, j.agent_id, j.exit_code,
       j.stopping,
       j.version, j.created_at, j.started_at, j.ended_at, j.updated_at, j.cancelled_at, j.cancelled_by
  FROM {ops}.jobs j
 WHERE j.run_id = $1 AND j.position > $2 AND j.code {in} $4 {ni} ORDER BY j.position LIMIT $3
