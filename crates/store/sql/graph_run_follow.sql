UPDATE {ops}.runs SET retry_of = $2, attempt = $3 WHERE run_id = $1
