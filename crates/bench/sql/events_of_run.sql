-- Many events of one run: every tenth is a warning, every hundredth an error. The caller has disabled the triggers.
INSERT INTO ops.run_log (run_id, seq, kind, level, message, payload)
SELECT r.run_id, n + 1, 'log',
       CASE WHEN n % 100 = 0 THEN 'error' WHEN n % 10 = 0 THEN 'warn' ELSE 'info' END,
       'line ' || n || ' of the output of a command with many lines',
       CASE WHEN n % 10 = 0 THEN jsonb_build_object('number', n) ELSE '{}' END
  FROM generate_series(1, $1) n,
       (SELECT run_id FROM ops.runs ORDER BY created_at DESC, run_id DESC LIMIT 1) r
