DELETE FROM {ops}.tasks WHERE job_id {in} $1 {ni}
