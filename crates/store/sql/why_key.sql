SELECT k.head_run_id AS run_id, r.claimed_by
  FROM {ops}.concurrency_keys k LEFT JOIN {ops}.runs r ON r.run_id = k.head_run_id
 WHERE k.project_id = $1 AND k.concurrency_key = $2
