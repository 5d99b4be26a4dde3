-- Runs that can be claimed, in the shape that queue_run gives them, with their first event.
INSERT INTO ops.runs (run_id, project_id, env_id, shelf_id, metadata, ready_at)
SELECT ops.new_run_id(clock_timestamp()), 'bench', 'bench/main', s.shelf_id,
       jsonb_build_object('payload', repeat('x', 86)), clock_timestamp()
  FROM ops.shelves s, generate_series(1, $1) n
 WHERE s.project_id = 'bench' AND s.labels = '{}'
