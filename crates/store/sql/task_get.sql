SELECT t.task_id, t.job_id, t.kind, t.number, t.agent_id, t.cancels, t.active, t.stage, t.stage_at,
       t.result, t.end_cause,
       t.unknown, t.log_bytes, t.created_at, t.ended_at
  FROM {ops}.tasks t WHERE t.task_id = $1
