DELETE FROM {ops}.schedules WHERE schedule_id = $1
