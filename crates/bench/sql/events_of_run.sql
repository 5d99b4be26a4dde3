-- One long record: every tenth event warns, every hundredth is an error. The caller has switched the triggers off.
INSERT INTO ops.run_events (run_id, seq, event_id, kind, level, message, payload)
SELECT r.run_id, n + 1, 'evt-' || substr(r.run_id, 5) || '-' || (n + 1), 'log',
       CASE WHEN n % 100 = 0 THEN 'error' WHEN n % 10 = 0 THEN 'warn' ELSE 'info' END,
       'line ' || n || ' of the output of a command that has a lot to say',
       CASE WHEN n % 10 = 0 THEN jsonb_build_object('number', n) ELSE '{}' END
  FROM generate_series(1, $1) n,
       (SELECT run_id FROM ops.runs ORDER BY run_id DESC LIMIT 1) r
