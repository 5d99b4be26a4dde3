UPDATE {sync}.partition_progress SET consolidated_to = $4, consolidated = consolidated + $5, refused = refused + $6
 WHERE run_id = $1 AND partition_id = $2 AND consolidated_to = $3
