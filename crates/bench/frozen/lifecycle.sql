-- Four calls with default arguments, each with its own commit. A backlog of queued runs keeps claims from finding none.
SELECT run_id, status, queued_at, created
  FROM ops.queue_run('bench', 'main', NULL, NULL,
    '{"payload": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}');
SELECT run_id AS run, epoch FROM ops.claim_next_run('worker-' || :client_id) \gset
SELECT ops.start_run(:run, 'worker-' || :client_id, :epoch);
SELECT ops.finish_run(:run, 'success', '{"exit_code": 0}', 'worker-' || :client_id, :epoch);
