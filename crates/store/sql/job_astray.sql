-- Jobs that have ended while a task of them goes on: a plain statement ended them, and no step of a controller.
SELECT j.job_id, j.run_id, j.position, j.project_id, j.workspace, j.name, j.labels, j.weight, j.pool,
       j.retries, j.lost_secs,
       j.code, j.message, j.errors, j.failures, j.not_before, j.task_number, j.task_id, j.agent_id, j.exit_code,
       j.stopping, j.created_at, j.started_at, j.ended_at, j.cancelled_at
  FROM {ops}.tasks t JOIN {ops}.jobs j ON j.job_id = t.job_id
 WHERE t.active AND t.kind = 'RUNJOB' AND j.ended_at IS NOT NULL AND NOT j.stopping
