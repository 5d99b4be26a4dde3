-- Differs: names of stones that are UUIDs are kept as such here, and as JSON there.
SELECT p.page_offset, p.page_hash, coalesce(p.stone_ids, p.stone_uuids::text[]) AS stone_ids
  FROM {ops}.pages p
 WHERE run_id = $1 AND partition_id = $2 AND page_offset >= $3
 ORDER BY page_offset LIMIT $4
