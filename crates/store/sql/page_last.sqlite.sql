-- Differs: names of stones are JSON here; those that are UUIDs are kept as such there.
SELECT page_offset, page_hash, stone_ids FROM {ops}.pages
 WHERE run_id = $1 AND partition_id = $2 AND pass = $3 AND page_offset < $4
 ORDER BY page_offset DESC LIMIT $5
