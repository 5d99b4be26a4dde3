-- Finished runs with one event each. The caller has disabled the triggers.
WITH inserted AS (
    INSERT INTO ops.runs (run_id, project_id, env_id, label_set_id, status, gate, claimed_by, epoch, end_cause,
                          last_seq, started_at, finished_at)
    SELECT ops.new_run_id(clock_timestamp() - interval '1 day'), 'bench', 'bench/main', s.label_set_id, 'success', NULL,
           'past', 1, 'reported', 1, clock_timestamp(), clock_timestamp()
      FROM ops.label_sets s, generate_series(1, $1) n
     WHERE s.project_id = 'bench' AND s.labels = '{}'
    RETURNING run_id, env_id)
INSERT INTO ops.run_steps (created_at, seq, step, run_id, env_id)
SELECT clock_timestamp(), 1, 'q', run_id, env_id FROM inserted
