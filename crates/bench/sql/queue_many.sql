-- One call for 1,000 runs, each with the contents of frozen/queue_one.sql.
SELECT count(*)
  FROM ops.queue_runs((SELECT jsonb_agg(jsonb_build_object('project', 'bench', 'env', 'main', 'metadata',
    jsonb_build_object('payload', repeat('x', 86)))) FROM generate_series(1, 1000)));
