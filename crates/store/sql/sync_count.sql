SELECT count(*) AS expected, coalesce(sum(CASE WHEN completed THEN 1 ELSE 0 END), 0) AS completed,
       coalesce(sum(CASE WHEN failed THEN 1 ELSE 0 END), 0) AS failed,
       coalesce(sum(CASE WHEN consolidated_to < next_offset THEN 1 ELSE 0 END), 0) AS unconsolidated
  FROM {sync}.partition_progress WHERE run_id = $1
