UPDATE {ops}.jobs SET cancelled_at = coalesce($3, {now}), cancelled_by = $2
 WHERE run_id = $1 AND name {in} $4 {ni} AND ended_at IS NULL AND cancelled_at IS NULL
