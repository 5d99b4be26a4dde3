-- Ended runs for every list filter, most of them equal. The caller has disabled the triggers.
WITH inserted AS (
    INSERT INTO ops.runs (run_id, project_id, env_id, label_set_id, lane, kind, status, gate, git_sha, git_ref,
                          concurrency_key, claimed_by, epoch, end_cause, last_seq, queued_at, created_at, started_at,
                          finished_at)
    SELECT ops.new_run_id(clock_timestamp() - interval '1 day'), s.project_id,
           CASE WHEN s.project_id = 'rare' THEN 'rare/main' WHEN n % 50000 = 1 THEN 'bench/rare' ELSE 'bench/main' END,
           s.label_set_id,
           CASE WHEN n % 1000 = 3 THEN 'sync' ELSE 'ops' END,
           CASE WHEN n % 100000 = 6 THEN 'rare' WHEN n % 2 = 0 THEN 'common' ELSE '' END,
           CASE WHEN n % 200 = 0 THEN 'failed' WHEN n % 1000 = 1 THEN 'cancelled' ELSE 'success' END,
           NULL,
           CASE WHEN n % 2 = 0 THEN md5(n::text) || '00000000' END,
           CASE WHEN n % 100000 = 4 THEN 'refs/heads/rare-' || n WHEN n % 2 = 0 THEN 'refs/heads/main' END,
           CASE WHEN n % 1000 = 3 THEN 'feed:stones' END,
           'past', 1, 'reported', 1, clock_timestamp() - interval '1 day', clock_timestamp() - interval '1 day',
           clock_timestamp(), clock_timestamp()
      FROM generate_series(1, $1) n
      JOIN ops.label_sets s
        ON s.project_id = CASE WHEN n % 100000 = 5 THEN 'rare' ELSE 'bench' END AND s.labels = '{}'
    RETURNING run_id, created_at, status, env_id, lane, kind, concurrency_key, git_sha, git_ref),
marked AS (
    INSERT INTO ops.run_lookup (kind, value, created_at, run_id)
    SELECT v.kind, v.value, m.created_at, m.run_id
      FROM inserted m
     CROSS JOIN LATERAL (VALUES ('lane', nullif(m.lane, 'ops')), ('kind', nullif(m.kind, '')),
                                ('feed', m.concurrency_key), ('sha', m.git_sha), ('ref', m.git_ref)) v (kind, value)
     WHERE v.value IS NOT NULL),
ended AS (
    INSERT INTO ops.unsuccessful_runs (status, created_at, run_id)
    SELECT status, created_at, run_id FROM inserted WHERE status IN ('failed', 'cancelled')
    RETURNING run_id)
INSERT INTO ops.run_steps (created_at, seq, step, run_id, env_id)
SELECT created_at, 1, 'q', run_id, env_id FROM inserted
