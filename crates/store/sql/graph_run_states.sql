SELECT run_id, status FROM {ops}.runs WHERE run_id {in} $1 {ni}
