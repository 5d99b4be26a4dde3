UPDATE {ops}.tasks SET stage = $2, stage_at = coalesce($3, {now}) WHERE task_id = $1
