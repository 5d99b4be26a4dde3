SELECT g.run_id, g.project_id, g.name, g.workspace, g.digest, g.only_jobs, g.rerun_needed, g.submitted_by,
       g.cancelled_by, g.created_at, r.status, r.retry_of, r.started_at, r.finished_at
  FROM {ops}.graphs g JOIN {ops}.runs r ON r.run_id = g.run_id WHERE g.run_id = $1
