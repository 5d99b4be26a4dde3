DELETE FROM {ops}.flags WHERE flag = 'maintenance' AND scope = $1 AND source = 'probe' AND set_by = $2
