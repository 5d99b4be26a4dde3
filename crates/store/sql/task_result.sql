UPDATE {ops}.tasks SET result = $2, result_at = coalesce($3, {now}), unknown = $4 WHERE task_id = $1
