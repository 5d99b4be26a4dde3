SELECT t.task_id, t.kind, t.job_id, t.cancels, t.number, j.run_id, j.project_id, j.workspace, j.spec
  FROM {ops}.tasks t JOIN {ops}.jobs j ON j.job_id = t.job_id
 WHERE t.agent_id = $1 AND t.active AND t.result IS NULL AND NOT t.task_id {in} $2 {ni}
 ORDER BY t.kind, t.created_at, t.task_id LIMIT $3
