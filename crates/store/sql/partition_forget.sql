-- A restart reads all pages again: what the ledger says of the earlier ones must not hide the new ones.
DELETE FROM {ops}.pages
 WHERE run_id = $1 AND partition_id IN (SELECT p.partition_id FROM {sync}.partition_progress p
                                         WHERE p.run_id = $1 AND p.failed AND p.restart)
