-- What people wish of jobs that the controller knows.
SELECT job_id, run_id, cancelled_at IS NOT NULL AS cancelled FROM {ops}.jobs WHERE job_id {in} $1 {ni}
