-- Those of the stones that are active.
SELECT d.supplier_stone_id AS value FROM {sync}.diamonds d
 WHERE d.feed = $1 AND d.status = 'active' AND d.supplier_stone_id {in} $2 {ni}
 ORDER BY d.supplier_stone_id
