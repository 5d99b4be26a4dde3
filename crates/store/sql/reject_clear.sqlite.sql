-- Differs: a list of words is JSON here, and an array there.
DELETE FROM {ops}.rejected_rows WHERE feed = $1 AND supplier_stone_id IN (SELECT value FROM json_each($2))
