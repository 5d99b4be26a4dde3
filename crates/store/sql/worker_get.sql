SELECT worker_id, name, host, pid, labels, version, started_at, beat_at, ended_at, draining
  FROM {ops}.workers WHERE worker_id = $1
