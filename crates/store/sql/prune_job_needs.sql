DELETE FROM {ops}.job_needs WHERE job_id {in} $1 {ni}
