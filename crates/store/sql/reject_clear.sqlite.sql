-- Differs: a list of words is JSON here, and an array there. What this sync itself could not read or store stays: its
-- row was built from an older record.
DELETE FROM {ops}.rejected_rows
 WHERE feed = $1 AND supplier_stone_id IN (SELECT value FROM json_each($2))
   AND (stage IN ('map', 'upsert') OR run_id <> $3)
