-- Records that could not be stored or mapped.

-- name: reject_put
INSERT INTO {ops}.rejected_rows AS r (feed, record_id, run_id, partition_id, stage, reason, payload,
    first_at, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, {now}), coalesce($8, {now}))
ON CONFLICT (feed, record_id) DO UPDATE SET run_id = excluded.run_id, partition_id = excluded.partition_id,
    stage = excluded.stage, reason = excluded.reason, payload = excluded.payload, times = r.times + 1,
    last_at = excluded.last_at, is_unique_violation = false

-- name: reject_unique_mark (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
UPDATE {ops}.rejected_rows SET is_unique_violation = true WHERE feed = $1 AND record_id = ANY ($2)

-- name: reject_unique_mark (sqlite)
UPDATE {ops}.rejected_rows SET is_unique_violation = true
 WHERE feed = $1 AND record_id IN (SELECT value FROM json_each($2))

-- name: reject_unique_forget
-- The records that a full sync did not read may be gone.
UPDATE {ops}.rejected_rows SET is_unique_violation = false
 WHERE feed = $1 AND is_unique_violation AND run_id <> $2

-- name: reject_unique_list
-- The last refused first.
SELECT record_id, run_id, partition_id FROM {ops}.rejected_rows
 WHERE feed = $1 AND is_unique_violation
 ORDER BY last_at DESC, record_id LIMIT $2

-- name: reject_unique_count
SELECT count(*) AS value FROM {ops}.rejected_rows WHERE feed = $1 AND is_unique_violation

-- name: reject_advice (postgres)
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
UPDATE {ops}.rejected_rows SET reason = reason || '; ' || $3
 WHERE feed = $1 AND record_id = ANY ($2) AND position($3 IN reason) = 0

-- name: reject_advice (sqlite)
UPDATE {ops}.rejected_rows SET reason = reason || '; ' || $3
 WHERE feed = $1 AND record_id IN (SELECT value FROM json_each($2)) AND instr(reason, $3) = 0

-- name: reject_list
-- The newest first. A page begins after the last record of the previous page.
SELECT feed, record_id, run_id, partition_id, stage, reason, payload, times, first_at, last_at
  FROM {ops}.rejected_rows
 WHERE ($1 IS NULL OR feed = $1)
   AND ($3 IS NULL OR feed IN (SELECT f.feed FROM {ops}.feeds f WHERE f.project_id = $3))
   AND ($4 IS NULL OR last_at < $4 OR (last_at = $4 AND (feed, record_id) > ($5, $6)))
 ORDER BY last_at DESC, feed, record_id LIMIT $2

-- name: reject_clear (postgres)
-- Keeps the records that this sync itself could not read or store: the canonical row was built from an older record.
-- A rebuild, which has no sync, keeps the rows that could not be deleted and are still there.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
DELETE FROM {ops}.rejected_rows r
 WHERE r.feed = $1 AND r.record_id = ANY ($2)
   AND (r.stage IN ('map', 'upsert') OR r.run_id <> $3
        OR r.stage = 'delete' AND NOT EXISTS (SELECT FROM {ops}.feed_records f
            WHERE f.feed = r.feed AND f.record_id = r.record_id AND f.state = 'active'))

-- name: reject_clear (sqlite)
DELETE FROM {ops}.rejected_rows AS r
 WHERE r.feed = $1 AND r.record_id IN (SELECT value FROM json_each($2))
   AND (r.stage IN ('map', 'upsert') OR r.run_id <> $3
        OR r.stage = 'delete' AND NOT EXISTS (SELECT 1 FROM {ops}.feed_records f
            WHERE f.feed = r.feed AND f.record_id = r.record_id AND f.state = 'active'))

-- name: reject_of_sync (postgres)
-- The records in $3 that the page reader rejected in this sync.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT record_id, stage FROM {ops}.rejected_rows
 WHERE feed = $1 AND run_id = $2 AND stage IN ('fetch', 'store') AND record_id = ANY ($3)

-- name: reject_of_sync (sqlite)
SELECT record_id, stage FROM {ops}.rejected_rows
 WHERE feed = $1 AND run_id = $2 AND stage IN ('fetch', 'store')
   AND record_id IN (SELECT value FROM json_each($3))

-- name: reject_count
-- The records that this sync, or a rebuild of its feed, could not write. A rebuild has the id $3.
SELECT stage, CAST(count(*) AS bigint) AS records FROM {ops}.rejected_rows
 WHERE feed = $1 AND run_id IN ($2, $3) GROUP BY stage
