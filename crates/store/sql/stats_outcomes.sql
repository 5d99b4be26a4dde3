SELECT count(*) FILTER (WHERE status = 'success') AS success_count,
       count(*) FILTER (WHERE status = 'failed') AS failed_count
  FROM {ops}.runs WHERE run_id > $1 AND (CAST($2 AS text) IS NULL OR project_id = $2)
