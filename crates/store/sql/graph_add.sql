INSERT INTO {ops}.graphs (run_id, project_id, name, workspace, digest, only_jobs, rerun_needed,
       submitted_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, coalesce($9, {now}))
