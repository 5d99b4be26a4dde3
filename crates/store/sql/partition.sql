-- Partitions of syncs, and the worker runs that operators see for them.

-- fragment: partition_columns
-- The columns of a partition.
run_id, partition_id, state, range_from, range_to, updated_from, predicted, next_offset, shift, pass, recount,
fetched, stored, changed, rejected, consolidated_to, consolidated, refused, faults, error, restart, gap_id,
first_page_at, ended_at, updated_at, next_token, cursor_max, listed, ledger, evidence

-- name: partition_insert
INSERT INTO {sync}.partition_progress (run_id, partition_id, range_from, range_to, predicted, updated_from, gap_id,
    created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, {now}), coalesce($8, {now}))

-- name: partition_get
SELECT {partition_columns}
  FROM {sync}.partition_progress WHERE run_id = $1 AND partition_id = $2

-- name: partition_list
SELECT {partition_columns}
  FROM {sync}.partition_progress WHERE run_id = $1 ORDER BY range_from, partition_id

-- name: partition_advance (sqlite)
-- Compare-and-swap on the offset and the pass. On PostgreSQL, store_page does this.
UPDATE {sync}.partition_progress
   SET next_offset = $5, shift = $6, state = 'fetching_pages', fetched = fetched + $7, stored = stored + $8,
       changed = changed + $9, rejected = rejected + $10, listed = listed + $14, faults = 0, error = NULL,
       updated_at = coalesce($11, {now}), first_page_at = coalesce(first_page_at, $11, {now}), next_token = $12,
       cursor_max = coalesce(max(cursor_max, $13), cursor_max, $13), linked = linked AND $15
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $3 AND pass = $4 AND NOT completed AND NOT failed

-- name: partition_end
UPDATE {sync}.partition_progress
   SET state = 'completed', completed = true, recount = $5, error = NULL, updated_at = coalesce($6, {now}),
       ended_at = coalesce($6, {now}), evidence = $7
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $3 AND pass = $4 AND NOT completed AND NOT failed

-- name: partition_again
-- Reads the list from its start again: the offset goes on, and the shift subtracts all of it.
UPDATE {sync}.partition_progress
   SET pass = pass + 1, shift = next_offset, next_token = NULL, recount = $5, updated_at = coalesce($6, {now}),
       linked = true, counted = NULL, counted_at = NULL
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $3 AND pass = $4 AND NOT completed AND NOT failed

-- name: partition_counted
-- The count of the source before the first page of a pass.
UPDATE {sync}.partition_progress SET counted = $5, counted_at = $6
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $3 AND pass = $4 AND NOT completed AND NOT failed

-- name: partition_pass
-- The state of a pass, to decide whether it read every record.
SELECT p.linked, p.counted, p.counted_at,
       (SELECT count(*) FROM {ops}.pages g
         WHERE g.run_id = p.run_id AND g.partition_id = p.partition_id AND g.pass = p.pass) AS pages
  FROM {sync}.partition_progress p WHERE p.run_id = $1 AND p.partition_id = $2 AND p.pass = $3

-- name: partition_receive
UPDATE {sync}.partition_progress SET state = 'in_progress', updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND partition_id = $2 AND state = 'pending'

-- name: partition_fault
UPDATE {sync}.partition_progress
   SET faults = faults + 1, error = $4, updated_at = coalesce($5, {now})
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $3 AND NOT completed AND NOT failed
RETURNING CAST(faults AS bigint) AS value

-- name: partition_fail
UPDATE {sync}.partition_progress
   SET state = 'failed', failed = true, error = $3, updated_at = coalesce($4, {now}), ended_at = coalesce($4, {now})
 WHERE run_id = $1 AND partition_id = $2 AND next_offset = $5 AND NOT completed AND NOT failed

-- name: partition_fail_open
UPDATE {sync}.partition_progress
   SET state = 'failed', failed = true, error = $2, updated_at = coalesce($3, {now}), ended_at = coalesce($3, {now})
 WHERE run_id = $1 AND NOT completed AND NOT failed

-- name: partition_reopen
-- A failed partition continues where it stopped, or from its beginning if a restart was requested.
UPDATE {sync}.partition_progress
   SET state = 'pending', failed = false, error = NULL, faults = 0, ended_at = NULL, restart = false,
       next_offset = CASE WHEN restart THEN 0 ELSE next_offset END,
       consolidated_to = CASE WHEN restart THEN 0 ELSE consolidated_to END,
       consolidated = CASE WHEN restart THEN 0 ELSE consolidated END,
       refused = CASE WHEN restart THEN 0 ELSE refused END,
       listed = CASE WHEN restart THEN 0 ELSE listed END, ledger = CASE WHEN restart THEN '{}' ELSE ledger END,
       shift = CASE WHEN restart THEN 0 ELSE shift END, pass = CASE WHEN restart THEN 1 ELSE pass END,
       next_token = CASE WHEN NOT restart THEN next_token END, cursor_max = CASE WHEN NOT restart THEN cursor_max END,
       linked = linked OR restart, counted = CASE WHEN NOT restart THEN counted END,
       counted_at = CASE WHEN NOT restart THEN counted_at END,
       updated_at = coalesce($2, {now})
 WHERE run_id = $1 AND failed

-- name: partition_restart
UPDATE {sync}.partition_progress SET restart = true
 WHERE run_id = $1 AND failed AND ($2 IS NULL OR partition_id = $2)

-- name: partition_forget
-- A restart reads all pages again: the records of the earlier pages must not hide the new ones.
DELETE FROM {ops}.pages
 WHERE run_id = $1 AND partition_id IN (SELECT p.partition_id FROM {sync}.partition_progress p
                                         WHERE p.run_id = $1 AND p.failed AND p.restart)

-- name: partition_forget_rejects
-- The page reader rejected these records on pages that are read again.
DELETE FROM {ops}.rejected_rows
 WHERE run_id = $1 AND stage IN ('fetch', 'store')
   AND partition_id IN (SELECT p.partition_id FROM {sync}.partition_progress p
                         WHERE p.run_id = $1 AND p.failed AND p.restart)

-- name: partition_open (postgres)
-- Differs: on PostgreSQL, a partition that another consolidator has locked is skipped. SQLite has one writer at a time.
SELECT {partition_columns}
  FROM {sync}.partition_progress WHERE run_id = $1 AND consolidated_to < next_offset
 ORDER BY partition_id LIMIT 1 FOR UPDATE SKIP LOCKED

-- name: partition_open (sqlite)
SELECT {partition_columns}
  FROM {sync}.partition_progress WHERE run_id = $1 AND consolidated_to < next_offset
 ORDER BY partition_id LIMIT 1

-- name: partition_consolidated
UPDATE {sync}.partition_progress SET consolidated_to = $4, consolidated = consolidated + $5, refused = refused + $6,
       ledger = $7
 WHERE run_id = $1 AND partition_id = $2 AND consolidated_to = $3

-- name: partition_refused_less
-- Rows that were rejected and are written now.
UPDATE {sync}.partition_progress SET refused = refused - $3
 WHERE run_id = $1 AND partition_id = $2 AND refused >= $3

-- name: partition_anew
-- Consolidates every record again, because the pricing rules have changed. Waits for batches in progress.
UPDATE {sync}.partition_progress SET consolidated_to = 0, consolidated = 0, refused = 0, ledger = '{}'
 WHERE run_id = $1

-- name: worker_run_begin
INSERT INTO {sync}.worker_runs (id, run_id, partition_id, worker_id, status, records_processed, work_item_payload,
    started_at)
VALUES ($1, $2, $3, $4, 'running', 0, $5, coalesce($6, {now}))
ON CONFLICT (run_id, partition_id) DO UPDATE SET worker_id = excluded.worker_id,
    work_item_payload = excluded.work_item_payload, status = 'running', error_message = NULL, completed_at = NULL
 WHERE worker_runs.status = 'failed'

-- name: worker_run_count
-- Copies the count from the partition: it is correct at any time and need not be written at every page.
UPDATE {sync}.worker_runs SET worker_id = $3,
       records_processed = (SELECT p.stored FROM {sync}.partition_progress p
                             WHERE p.run_id = $1 AND p.partition_id = $2)
 WHERE run_id = $1 AND partition_id = $2

-- name: worker_run_end
UPDATE {sync}.worker_runs SET status = $3, error_message = $4, completed_at = coalesce($5, {now})
 WHERE run_id = $1 AND partition_id = $2 AND status = 'running'

-- name: worker_run_end_all
UPDATE {sync}.worker_runs SET status = 'failed', error_message = $2, completed_at = coalesce($3, {now})
 WHERE run_id = $1 AND status = 'running'
