-- Runs that wait for their concurrency key. The caller has disabled the triggers.
INSERT INTO ops.runs (run_id, project_id, env_id, label_set_id, gate, concurrency_key, last_seq, ready_at)
SELECT ops.new_run_id(clock_timestamp() - interval '1 hour'), 'bench', 'bench/main', s.label_set_id, 'key', 'held', 1,
       clock_timestamp() - interval '1 hour'
  FROM ops.label_sets s, generate_series(1, $1) n
 WHERE s.project_id = 'bench' AND s.labels = '{}'
