-- Differs: how rows are read out of JSON.
-- A task of which the agent has said something meanwhile is left as it is; the writer counts.
UPDATE {ops}.tasks AS t SET active = false, end_cause = u.end_cause, ended_at = $2
  FROM jsonb_to_recordset($1) AS u (task_id text, end_cause text, believes text)
 WHERE t.task_id = u.task_id AND t.active
   AND (u.believes = 'anything' OR t.result IS NULL) AND (u.believes <> 'untouched' OR t.stage IS NULL)
