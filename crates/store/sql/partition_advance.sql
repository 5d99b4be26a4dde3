-- For SQLite; PostgreSQL's stands in functions/ with all else that a page does.
-- The compare-and-swap of a page: it names the offset and the pass that it believes in.
UPDATE {sync}.partition_progress
   SET next_offset = $5, shift = $6, state = 'fetching_pages', fetched = fetched + $7, stored = stored + $8,
       changed = changed + $9, rejected = rejected + $10, faults = 0, error = NULL, updated_at = coalesce($11, {now}),
       first_page_at = coalesce(first_page_at, $11, {now})
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $3 AND pass = $4 AND NOT completed AND NOT failed
