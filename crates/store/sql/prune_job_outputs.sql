DELETE FROM {ops}.job_outputs WHERE job_id {in} $1 {ni}
