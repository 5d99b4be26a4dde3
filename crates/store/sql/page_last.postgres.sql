-- Differs: names of stones that are UUIDs are kept as such here, and as JSON there.
SELECT p.page_offset, p.page_hash, coalesce(p.stone_ids, p.stone_uuids::text[]) AS stone_ids
  FROM {ops}.pages p
 WHERE run_id = $1 AND partition_id = $2 AND pass = $3 AND page_offset < $4
 ORDER BY page_offset DESC LIMIT $5
