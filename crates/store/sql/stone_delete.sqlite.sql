-- Differs: a list of words is JSON here, and an array there.
UPDATE {sync}.diamonds SET status = 'deleted', deleted_at = $3, updated_at = $3
 WHERE feed = $1 AND status = 'active' AND supplier_stone_id IN (SELECT value FROM json_each($2))
