-- A run that goes on without a worker of its own: claimed and started in one step by whoever gave the order.
UPDATE {ops}.runs
   SET status = 'claimed', gate = NULL, claimed_by = $2, epoch = epoch + 1, started_at = coalesce($3, {now}),
       lease_secs = {lease_secs}, lease_until = coalesce($4, {now}), updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND status = 'queued' AND gate = 'open'
