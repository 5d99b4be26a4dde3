-- Differs: a partition that another consolidator has at hand is passed over; SQLite has one writer at a time.
SELECT run_id, partition_id, state, price_from, price_to, updated_from, predicted, next_offset, shift, pass, recount,
       fetched, stored, changed, rejected, consolidated_to, consolidated, refused, faults, error, restart, gap_id,
       first_page_at, ended_at, updated_at
  FROM {sync}.partition_progress WHERE run_id = $1 AND consolidated_to < next_offset
 ORDER BY partition_id LIMIT 1 FOR UPDATE SKIP LOCKED
