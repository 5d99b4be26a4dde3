-- Differs: names of stones that are UUIDs are kept as such here, and as JSON there.
INSERT INTO {ops}.pages (run_id, partition_id, page_offset, pass, fetched, stored, changed, page_hash, stone_ids,
    stored_at, stone_uuids)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, {now}), $11)
