SELECT worker_id, name, host, pid, labels, version, started_at, beat_at, ended_at
  FROM {ops}.workers
 ORDER BY ended_at IS NOT NULL, name, started_at DESC
 LIMIT 1000
