-- Runs that are not available before tomorrow. The caller has disabled the triggers.
INSERT INTO ops.runs (run_id, project_id, env_id, label_set_id, gate, last_seq, ready_at, available_at,
                      attention_at)
SELECT ops.new_run_id(clock_timestamp() - interval '1 hour'), 'bench', 'bench/main', s.label_set_id, 'time', 1,
       clock_timestamp() + interval '1 day', clock_timestamp() + interval '1 day', clock_timestamp() + interval '1 day'
  FROM ops.label_sets s, generate_series(1, $1) n
 WHERE s.project_id = 'bench' AND s.labels = '{}'
