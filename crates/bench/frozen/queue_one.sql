SELECT run_id, status, queued_at, created
  FROM ops.queue_run('bench', 'main', NULL, NULL,
    '{"payload": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}');
