-- One call for 1,000 runs as in queue_many.sql, each with a label, an idempotency key and a concurrency key of its own.
SELECT count(*)
  FROM ops.queue_runs((SELECT jsonb_agg(jsonb_build_object('project', 'bench', 'env', 'main', 'metadata',
    jsonb_build_object('payload', repeat('x', 86)), 'labels', '["gpu"]'::jsonb,
    'idempotency_key', gen_random_uuid(), 'concurrency_key', gen_random_uuid())) FROM generate_series(1, 1000)));
