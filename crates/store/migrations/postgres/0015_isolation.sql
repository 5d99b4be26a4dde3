-- One run, key or worker that is in trouble must not stop the others.

-- When a running run went silent whose worker has promised no signs of life. The run stays with its worker (ADR 24).
ALTER TABLE {ops}.runs ADD COLUMN stalled_at timestamptz;

-- Runs whose lease the last beat of a worker could not renew, because another transaction had their rows.
ALTER TABLE {ops}.workers ADD COLUMN locked_runs text[];

-- The alert of a lost run was called `run_stalled`; that name now means a run that waits for a person.
UPDATE {ops}.alerts SET kind = 'run_lost' WHERE kind = 'run_stalled';
UPDATE {ops}.deliveries SET kind = 'run_lost', alert = alert || '{"kind": "run_lost"}'
 WHERE kind = 'run_stalled';
