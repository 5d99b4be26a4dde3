-- For SQLite; PostgreSQL's stands in functions/ with all else that a page does.
INSERT INTO {ops}.pages (run_id, partition_id, page_offset, pass, fetched, stored, changed, page_hash, stone_ids,
    stored_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, {now}))
