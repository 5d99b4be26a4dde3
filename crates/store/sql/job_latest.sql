-- Of each name the latest job of the workspace.
SELECT j.job_id, j.name, j.code, j.task_number, j.task_id, j.agent_id, j.exit_code
  FROM {each} $3 {as_u}
  JOIN {ops}.jobs j ON j.job_id = (SELECT k.job_id FROM {ops}.jobs k
                                    WHERE k.project_id = $1 AND k.workspace = $2 AND k.name = u.value
                                    ORDER BY k.run_id DESC LIMIT 1)
