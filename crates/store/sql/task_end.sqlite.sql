-- Differs: how rows are read out of JSON.
-- A task of which the agent has said something meanwhile is left as it is; the writer counts.
UPDATE {ops}.tasks AS t SET active = 0, end_cause = u.end_cause, ended_at = $2
  FROM (SELECT json_extract(value, '$.task_id') AS task_id, json_extract(value, '$.end_cause') AS end_cause,
               json_extract(value, '$.believes') AS believes FROM json_each($1)) AS u
 WHERE t.task_id = u.task_id AND t.active
   AND (u.believes = 'anything' OR t.result IS NULL) AND (u.believes <> 'untouched' OR t.stage IS NULL)
