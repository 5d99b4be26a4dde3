-- At most $2 pieces of what the tasks of a run wrote.
DELETE FROM {ops}.task_logs
 WHERE (task_id, seq) IN (SELECT l.task_id, l.seq
                            FROM {ops}.jobs j JOIN {ops}.tasks t ON t.job_id = j.job_id
                            JOIN {ops}.task_logs l ON l.task_id = t.task_id
                           WHERE j.run_id = $1 LIMIT $2)
