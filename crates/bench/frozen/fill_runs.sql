-- Queues `:runs` runs with the function itself, so that this file does not depend on the tables.
SELECT count(q)
  FROM (SELECT ops.queue_run('bench', 'main', NULL, NULL, jsonb_build_object('payload', repeat('x', 86))) AS q
          FROM generate_series(1, :runs)) s;
VACUUM ANALYZE;
