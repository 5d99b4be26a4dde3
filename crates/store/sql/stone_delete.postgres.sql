-- Differs: a list of words is an array here, and JSON there.
UPDATE {sync}.diamonds SET status = 'deleted', deleted_at = coalesce($3, {now}), updated_at = coalesce($3, {now})
 WHERE feed = $1 AND status = 'active' AND supplier_stone_id = ANY ($2)
