DELETE FROM {ops}.schedule_fires WHERE fire_at < $1
