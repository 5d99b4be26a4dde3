SELECT array_agg(run_id)::text AS runs, array_agg(epoch)::text AS epochs
  FROM ops.claim_next_run('worker-' || :client_id, 100) \gset
SELECT count(*)
  FROM ops.finish_runs(:runs::text[], array_fill('success'::text, ARRAY[100]),
    array_fill('{"exit_code": 0}'::jsonb, ARRAY[100]), 'worker-' || :client_id, :epochs::integer[]);
