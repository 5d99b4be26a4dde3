SELECT t.task_id, t.job_id, t.kind, t.number, t.agent_id, t.cancels, t.stage, t.result, r.stage AS cancelled_stage,
       r.result IS NOT NULL AS cancelled_over
  FROM {ops}.tasks t LEFT JOIN {ops}.tasks r ON r.task_id = t.cancels
 WHERE t.active AND t.job_id {in} $1 {ni}
