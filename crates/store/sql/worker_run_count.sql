-- What the partition has stored, so that it is right whenever it is written, and need not be written at every page.
UPDATE {sync}.worker_runs SET worker_id = $3,
       records_processed = (SELECT p.stored FROM {sync}.partition_progress p
                             WHERE p.run_id = $1 AND p.partition_id = $2)
 WHERE run_id = $1 AND partition_id = $2
