-- Of jobs whose outputs an agent keeps: whether a run that goes on has to do with them, and when the last run ended
-- that had. A job that is not reported yet is known by its task.
SELECT u.value AS job_id,
       EXISTS (SELECT 1 FROM {ops}.tasks t JOIN {ops}.runs r ON r.run_id = t.run_id
                WHERE t.job_id = u.value AND t.agent_id = $1 AND r.finished_at IS NULL)
       OR EXISTS (SELECT 1 FROM {ops}.job_outputs o JOIN {ops}.jobs j ON j.job_id = o.job_id
                    JOIN {ops}.runs r ON r.run_id = j.run_id
                   WHERE o.agent_id = $1 AND o.made_by = u.value AND r.finished_at IS NULL) AS needed,
       (SELECT max(r.finished_at) FROM {ops}.job_outputs o JOIN {ops}.jobs j ON j.job_id = o.job_id
          JOIN {ops}.runs r ON r.run_id = j.run_id
         WHERE o.agent_id = $1 AND o.made_by = u.value) AS used_at
  FROM {each} $2 {as_u}
