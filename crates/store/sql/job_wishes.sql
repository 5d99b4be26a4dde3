-- What people wish of jobs that the controller knows, and where they are: a plain statement may have moved them.
SELECT job_id, run_id, cancelled_at IS NOT NULL AS cancelled, code FROM {ops}.jobs WHERE job_id {in} $1 {ni}
