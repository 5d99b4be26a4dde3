SELECT run_id AS run, epoch FROM ops.claim_next_run('worker-' || :client_id) \gset
SELECT ops.finish_run(:run, 'success', '{"exit_code": 0}', 'worker-' || :client_id, :epoch);
