-- Consolidation looks at every stone once more, because its rules have changed. Waits for the batches that are at hand.
UPDATE {sync}.partition_progress SET consolidated_to = 0, consolidated = 0, refused = 0 WHERE run_id = $1
