UPDATE {ops}.runs SET status = 'running', updated_at = coalesce($2, {now}) WHERE run_id = $1 AND status = 'claimed'
