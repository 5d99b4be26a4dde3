-- Differs: a list of words is an array here, and JSON there.
DELETE FROM {ops}.rejected_rows WHERE feed = $1 AND supplier_stone_id = ANY ($2)
