UPDATE {ops}.runs SET lane = $2 WHERE run_id = $1 AND lane <> $2
