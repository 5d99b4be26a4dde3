-- One run, key or worker that is in trouble must not stop the others.

-- When a running run went silent whose worker has promised no signs of life. The run stays with its worker (ADR 24).
ALTER TABLE runs ADD COLUMN stalled_at INTEGER;
-- Differs: one writer at a time has no rows that others have locked, so workers note none.

-- The alert of a lost run was called `run_stalled`; that name now means a run that waits for a person.
UPDATE alerts SET kind = 'run_lost' WHERE kind = 'run_stalled';
UPDATE deliveries SET kind = 'run_lost', alert = json_set(alert, '$.kind', 'run_lost')
 WHERE kind = 'run_stalled';
