-- Records that could not be stored or mapped.

-- name: reject_put
INSERT INTO {ops}.rejected_rows AS r (feed, record_id, run_id, partition_id, stage, reason, payload,
    first_at, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, {now}), coalesce($8, {now}))
ON CONFLICT (feed, record_id) DO UPDATE SET run_id = excluded.run_id, partition_id = excluded.partition_id,
    stage = excluded.stage, reason = excluded.reason, payload = excluded.payload, times = r.times + 1,
    last_at = excluded.last_at

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
