-- Feeds, their watermarks, and the gaps that a watermark passed.

-- name: feed_add
-- Equal values change no row.
INSERT INTO {ops}.feeds AS f
    (feed, project_id, kind, endpoint, username, password_env, rate, settings, copy_url, defined_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, coalesce($11, {now}))
ON CONFLICT (feed) DO UPDATE SET endpoint = excluded.endpoint, username = excluded.username,
    password_env = excluded.password_env, rate = excluded.rate, settings = excluded.settings,
    copy_url = excluded.copy_url, defined_by = excluded.defined_by, refusal = NULL
 WHERE f.project_id = excluded.project_id AND f.kind = excluded.kind
   AND (f.endpoint <> excluded.endpoint OR f.username IS DISTINCT FROM excluded.username
     OR f.password_env IS DISTINCT FROM excluded.password_env OR f.rate <> excluded.rate
     OR f.settings <> excluded.settings OR f.copy_url IS DISTINCT FROM excluded.copy_url
     OR f.defined_by <> excluded.defined_by OR f.refusal IS NOT NULL)

-- name: feed_list
SELECT feed, project_id, kind, endpoint, username, password_env, rate, settings, last_updated_at, last_run_id,
       last_run_completed_at, copy_url, copied_updated_at, copy_error, circuit, circuit_rev, circuit_reason,
       defined_by, refusal, created_at
  FROM {ops}.feeds WHERE $1 IS NULL OR feed = $1 ORDER BY feed

-- name: feed_lock (postgres)
-- Differs: SQLite has one writer at a time and needs no row locks.
SELECT feed AS value FROM {ops}.feeds WHERE feed = $1 FOR UPDATE

-- name: feed_lock (sqlite)
SELECT feed AS value FROM {ops}.feeds WHERE feed = $1

-- name: feed_watermark
UPDATE {ops}.feeds SET last_updated_at = $2, last_run_id = $3, last_run_completed_at = coalesce($4, {now})
 WHERE feed = $1

-- name: feed_circuit
-- Compare-and-swap on circuit_rev: of several processes that find the feed down, or probe it, one writes.
UPDATE {ops}.feeds SET circuit = $3, circuit_reason = $4, circuit_rev = circuit_rev + 1
 WHERE feed = $1 AND circuit_rev = $2

-- name: feed_refused
UPDATE {ops}.feeds SET refusal = $2 WHERE feed = $1

-- name: feed_copied
UPDATE {ops}.feeds
   SET copied_updated_at = coalesce($2, copied_updated_at), copied_at = coalesce($3, {now}), copy_error = $4
 WHERE feed = $1

-- name: feed_table_lock (postgres)
-- Serializes feeds that claim tables. Transactions that write a table are not blocked.
-- Differs: several processes may apply definitions at once. SQLite has one writer at a time.
LOCK TABLE {ops}.feed_tables IN SHARE ROW EXCLUSIVE MODE

-- name: feed_table_lock (sqlite)
SELECT 1

-- name: feed_table_put
INSERT INTO {ops}.feed_tables (feed, table_name, claim) VALUES ($1, $2, $3)
ON CONFLICT (feed) DO UPDATE SET table_name = excluded.table_name, claim = excluded.claim

-- name: feed_table_get
SELECT t.feed, f.project_id, t.table_name, t.claim
  FROM {ops}.feed_tables t JOIN {ops}.feeds f ON f.feed = t.feed
 WHERE t.feed = $1

-- name: feed_table_others
SELECT t.feed, f.project_id, t.table_name, t.claim
  FROM {ops}.feed_tables t JOIN {ops}.feeds f ON f.feed = t.feed
 WHERE t.table_name = $1 AND t.feed <> $2
 ORDER BY t.feed

-- name: feed_table_hold (postgres)
-- Reads the row of a feed, which no other transaction changes until this one ends.
-- Differs: SQLite has one writer at a time and needs no row locks.
SELECT t.feed, f.project_id, t.table_name, t.claim
  FROM {ops}.feed_tables t JOIN {ops}.feeds f ON f.feed = t.feed
 WHERE t.feed = $1 FOR SHARE OF t

-- name: feed_table_hold (sqlite)
SELECT t.feed, f.project_id, t.table_name, t.claim
  FROM {ops}.feed_tables t JOIN {ops}.feeds f ON f.feed = t.feed
 WHERE t.feed = $1

-- name: watermark_note
INSERT INTO {ops}.watermark_changes (feed, changed_at, before_at, after_at, run_id, by_whom, note)
VALUES ($1, coalesce($2, {now}), $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING

-- name: watermark_list
SELECT changed_at, before_at, after_at, run_id, by_whom, note
  FROM {ops}.watermark_changes WHERE feed = $1 ORDER BY changed_at DESC LIMIT $2

-- name: gap_add
INSERT INTO {ops}.feed_gaps (feed, range_from, range_to, updated_from, updated_to, left_by, reason, created_at)
SELECT m.feed, p.range_from, p.range_to, p.updated_from, m.updated_to, m.run_id, coalesce(p.error, 'failed'),
       coalesce($2, {now})
  FROM {sync}.partition_progress p JOIN {sync}.run_metadata m ON m.run_id = p.run_id
 WHERE p.run_id = $1 AND p.failed

-- name: gap_list
SELECT gap_id, feed, range_from, range_to, updated_from, updated_to, left_by, reason, created_at, closed_by, closed_at
  FROM {ops}.feed_gaps WHERE ($1 IS NULL OR feed = $1) AND ($2 OR closed_at IS NULL) ORDER BY gap_id

-- name: gap_page
-- The oldest first. A page begins after the last gap of the previous page.
SELECT gap_id, feed, range_from, range_to, updated_from, updated_to, left_by, reason, created_at, closed_by, closed_at
  FROM {ops}.feed_gaps
 WHERE ($1 IS NULL OR feed = $1) AND ($2 OR closed_at IS NULL)
   AND ($3 IS NULL OR feed IN (SELECT f.feed FROM {ops}.feeds f WHERE f.project_id = $3))
   AND gap_id > $4
 ORDER BY gap_id LIMIT $5

-- name: gap_close
-- Closes the gaps that this sync covers: those whose partitions were all completed. A full sync covers the whole
-- range without partitions for gaps; there, no unfinished partition may overlap the gap.
UPDATE {ops}.feed_gaps SET closed_by = $1, closed_at = coalesce($2, {now})
 WHERE closed_at IS NULL AND left_by <> $1
   AND (gap_id IN (SELECT p.gap_id FROM {sync}.partition_progress p WHERE p.run_id = $1 AND p.gap_id IS NOT NULL)
        OR feed IN (SELECT m.feed FROM {sync}.run_metadata m WHERE m.run_id = $1 AND m.run_type = 'full'))
   AND NOT EXISTS (SELECT 1 FROM {sync}.partition_progress p
                    WHERE p.run_id = $1 AND NOT p.completed
                      AND p.range_from < feed_gaps.range_to AND feed_gaps.range_from < p.range_to)
