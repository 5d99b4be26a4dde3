-- Every order that stands; of an order to stop also what is known of the task that it stops.
SELECT t.task_id, t.job_id, t.kind, t.number, t.agent_id, t.cancels, t.stage, t.result, r.stage AS cancelled_stage,
       r.result IS NOT NULL AS cancelled_over,
       t.result IS NOT NULL AND EXISTS (SELECT 1 FROM {ops}.job_outputs o
                                         WHERE o.job_id = t.job_id AND o.task_id = t.task_id AND o.url IS NULL) AS keeps
  FROM {ops}.tasks t LEFT JOIN {ops}.tasks r ON r.task_id = t.cancels
 WHERE t.active
