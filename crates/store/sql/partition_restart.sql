UPDATE {sync}.partition_progress SET restart = true
 WHERE run_id = $1 AND failed AND ($2 IS NULL OR partition_id = $2)
