DELETE FROM {ops}.job_events WHERE job_id {in} $1 {ni}
