-- Syncs.

-- fragment: sync_columns
-- The columns of a sync.
run_id, ops_run_id, feed, run_type, state, trace_id, expected_workers, completed_workers, failed_workers,
watermark_before, watermark_after, updated_from, updated_to, page_size, granularity, predicted, count_calls, scan_ms,
heatmap, generation, rules_version, forced, advance, error, started_at, completed_at, consolidation_started_at,
consolidation_completed_at, consolidation_processed, consolidation_errors, consolidation_total, deleted, delete_note,
absence_evidence, updated_at, definition, absent_kept, ledger

-- name: sync_insert
INSERT INTO {sync}.run_metadata (run_id, ops_run_id, feed, run_type, state, trace_id, expected_workers,
    watermark_before, updated_from, updated_to, page_size, granularity, predicted, count_calls, scan_ms, heatmap,
    started_at, updated_at, definition)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, coalesce($17, {now}),
    coalesce($17, {now}), $18)
ON CONFLICT DO NOTHING

-- name: sync_get
SELECT {sync_columns}
  FROM {sync}.run_metadata WHERE run_id = $1

-- name: sync_of_run
SELECT {sync_columns}
  FROM {sync}.run_metadata WHERE ops_run_id = $1

-- name: sync_list
SELECT {sync_columns}
  FROM {sync}.run_metadata
 WHERE ($1 IS NULL OR feed = $1)
   AND ($3 IS NULL OR feed IN (SELECT f.feed FROM {ops}.feeds f WHERE f.project_id = $3))
   AND ($4 IS NULL OR (started_at, run_id) < (SELECT p.started_at, p.run_id FROM {sync}.run_metadata p
                                               WHERE p.run_id = $4))
 ORDER BY started_at DESC, run_id DESC LIMIT $2

-- name: sync_live
SELECT {sync_columns}
  FROM {sync}.run_metadata WHERE state NOT IN ('completed', 'failed') ORDER BY started_at LIMIT $1

-- name: sync_lock (postgres)
-- A statement of its own: in one statement with the count, two last partitions would each see the other as open. NO
-- KEY: rows of worker_runs refer to the sync, and a transaction that inserts one must not wait for this lock.
-- Differs: SQLite has one writer at a time and needs no row locks.
SELECT feed AS value FROM {sync}.run_metadata WHERE run_id = $1 FOR NO KEY UPDATE

-- name: sync_lock (sqlite)
SELECT feed AS value FROM {sync}.run_metadata WHERE run_id = $1

-- name: sync_count
SELECT count(*) AS expected, coalesce(sum(CASE WHEN completed THEN 1 ELSE 0 END), 0) AS completed,
       coalesce(sum(CASE WHEN failed THEN 1 ELSE 0 END), 0) AS failed,
       coalesce(sum(CASE WHEN consolidated_to < next_offset THEN 1 ELSE 0 END), 0) AS unconsolidated
  FROM {sync}.partition_progress WHERE run_id = $1

-- name: sync_counted
UPDATE {sync}.run_metadata SET completed_workers = $2, failed_workers = $3, updated_at = coalesce($4, {now})
 WHERE run_id = $1 AND (completed_workers <> $2 OR failed_workers <> $3)

-- name: sync_state
UPDATE {sync}.run_metadata SET state = $3, error = $4, updated_at = coalesce($5, {now})
 WHERE run_id = $1 AND state = $2

-- name: sync_trigger
UPDATE {sync}.run_metadata
   SET state = 'consolidation_triggered', error = NULL, generation = generation + 1, forced = $3, advance = $4,
       consolidation_total = (SELECT coalesce(sum(p.stored), 0) FROM {sync}.partition_progress p
                               WHERE p.run_id = $1),
       rules_version = $5, updated_at = coalesce($6, {now})
 WHERE run_id = $1 AND state = $2
RETURNING CAST(generation AS bigint) AS value

-- name: sync_repin
-- A sync that is being consolidated continues with other pricing rules.
UPDATE {sync}.run_metadata SET rules_version = $2, updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND state IN ('consolidation_triggered', 'consolidating')

-- name: sync_consume
UPDATE {sync}.run_metadata
   SET state = 'consolidating', consolidation_started_at = coalesce(consolidation_started_at, $2, {now}),
       updated_at = coalesce($2, {now})
 WHERE run_id = $1 AND state IN ('consolidation_triggered', 'consolidating')

-- name: sync_progress
UPDATE {sync}.run_metadata SET deleted = deleted + $2, updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND state = 'consolidating'

-- name: sync_evidence
UPDATE {sync}.run_metadata SET absence_evidence = $2 WHERE run_id = $1 AND state = 'consolidating'

-- name: sync_delete_note
UPDATE {sync}.run_metadata SET delete_note = $2 WHERE run_id = $1

-- name: sync_absent_kept
UPDATE {sync}.run_metadata SET absent_kept = $2 WHERE run_id = $1

-- name: sync_complete
UPDATE {sync}.run_metadata
   SET state = 'completed', error = NULL, completed_at = coalesce($3, {now}), watermark_after = $2,
       consolidation_processed = (SELECT coalesce(sum(p.consolidated), 0) FROM {sync}.partition_progress p
                                   WHERE p.run_id = $1),
       consolidation_errors = (SELECT coalesce(sum(p.refused), 0) FROM {sync}.partition_progress p
                                WHERE p.run_id = $1),
       consolidation_completed_at = coalesce($3, {now}), updated_at = coalesce($3, {now}), ledger = $5,
       deleted = deleted + $6
 WHERE run_id = $1 AND state = $4

-- name: sync_resume
UPDATE {sync}.run_metadata
   SET state = 'workers_running', ops_run_id = $2, error = NULL, generation = generation + 1, forced = false,
       advance = false, updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND state = 'failed'
RETURNING CAST(generation AS bigint) AS value

-- name: sync_newer
SELECT CAST(n.run_id AS text) AS value FROM {sync}.run_metadata n
  JOIN {sync}.run_metadata m ON m.run_id = $1 AND n.feed = m.feed
 WHERE n.state = 'completed' AND n.started_at > m.started_at AND n.run_id <> m.run_id
 ORDER BY n.started_at DESC LIMIT 1

-- name: sync_before
-- The last completed sync of this feed that had ended when this one started.
SELECT {sync_columns}
  FROM {sync}.run_metadata
 WHERE feed = $1 AND state = 'completed' AND run_id <> $2 AND completed_at <= $3
 ORDER BY started_at DESC LIMIT 1

-- name: sync_full_before
-- The full sync before this one that read every record, to check whether it missed a record too.
SELECT CAST(m.run_id AS text) AS run_id, m.absence_evidence FROM {sync}.run_metadata m
 WHERE m.feed = $1 AND m.run_type = 'full' AND m.state = 'completed' AND coalesce(m.failed_workers, 0) = 0
   AND m.absence_evidence IS NOT NULL AND m.run_id <> $2
 ORDER BY m.started_at DESC LIMIT 1

-- name: sync_old
-- Syncs that ended long ago, except for two of each feed. The pages of the last full sync that read every record
-- show which records it missed, and the partitions of the last completed sync which numbers it read.
SELECT CAST(m.run_id AS text) AS value FROM {sync}.run_metadata m
 WHERE m.state IN ('completed', 'failed') AND m.updated_at < $1
   AND (m.state <> 'completed'
        OR EXISTS (SELECT 1 FROM {sync}.run_metadata n
                    WHERE n.feed = m.feed AND n.state = 'completed' AND n.started_at > m.started_at))
   AND (m.state <> 'completed' OR m.run_type <> 'full' OR coalesce(m.failed_workers, 0) > 0
        OR m.absence_evidence IS NULL
        OR EXISTS (SELECT 1 FROM {sync}.run_metadata n
                    WHERE n.feed = m.feed AND n.state = 'completed' AND n.run_type = 'full'
                      AND coalesce(n.failed_workers, 0) = 0 AND n.absence_evidence IS NOT NULL
                      AND n.started_at > m.started_at))
 ORDER BY m.started_at LIMIT $2

-- name: sync_rebind
UPDATE {sync}.run_metadata SET ops_run_id = $2 WHERE run_id = $1
