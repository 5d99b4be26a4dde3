UPDATE {ops}.graphs SET cancelled_at = coalesce($4, {now}), cancelled_by = $2, cancel_reason = $3
 WHERE run_id = $1 AND cancelled_at IS NULL
