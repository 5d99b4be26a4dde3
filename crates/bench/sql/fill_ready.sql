-- Claimable runs with the same columns as queue_run, and their first event.
WITH queued AS (
    INSERT INTO ops.runs (run_id, project_id, env_id, label_set_id, metadata, last_seq, ready_at)
    SELECT ops.new_run_id(clock_timestamp()), 'bench', 'bench/main', s.label_set_id,
           jsonb_build_object('payload', repeat('x', 86)), 1, clock_timestamp()
      FROM ops.label_sets s, generate_series(1, $1) n
     WHERE s.project_id = 'bench' AND s.labels = '{}'
    RETURNING run_id, env_id)
INSERT INTO ops.run_steps (created_at, seq, step, run_id, env_id)
SELECT clock_timestamp(), 1, 'q', run_id, env_id FROM queued
