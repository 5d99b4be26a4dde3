-- The next jobs of a run to go, at most $2: they are taken while those before them left fewer files than $3. A job with
-- more goes too, and whole: nobody reuses a part of what it left.
SELECT told.job_id AS value FROM (
    SELECT part.job_id, sum(part.files) OVER (ORDER BY part.position) - part.files AS files_before
      FROM (SELECT j.job_id, j.position, (SELECT CAST(count(*) AS integer) FROM {ops}.job_outputs o
                                           WHERE o.job_id = j.job_id) AS files
              FROM {ops}.jobs j WHERE j.run_id = $1 ORDER BY j.position LIMIT $2) part) told
 WHERE told.files_before < $3
