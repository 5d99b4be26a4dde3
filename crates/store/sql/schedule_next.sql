SELECT min(next_fire_at) AS next_at FROM {ops}.schedules WHERE paused_at IS NULL AND next_fire_at < $1
