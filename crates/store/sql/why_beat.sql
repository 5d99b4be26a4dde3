SELECT w.beat_at FROM {ops}.workers w JOIN {ops}.runs r ON r.worker_id = w.worker_id WHERE r.run_id = $1
