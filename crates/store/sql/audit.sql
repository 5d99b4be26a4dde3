-- The audit log and its seals.

-- name: audit_add
-- One entry per call: a retried call that was committed before adds none.
INSERT INTO {ops}.audit (at, call_id, who, token_id, role, action, subject, project_id, outcome, detail, source)
VALUES (coalesce($1, {now}), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (call_id) DO NOTHING

-- name: audit_may (postgres)
-- Whether this role may write the audit log.
-- Differs: SQLite has no roles.
SELECT has_table_privilege('{ops}.audit', 'INSERT') AS value

-- name: audit_may (sqlite)
SELECT 1 AS value

-- name: audit_list
-- The latest first.
SELECT audit_id, at, call_id, who, token_id, role, action, subject, project_id, outcome, detail, source, seal_no
  FROM {ops}.audit
 WHERE ($1 IS NULL OR project_id = $1)
   AND ($2 IS NULL OR audit_id < $2)
 ORDER BY audit_id DESC
 LIMIT $3

-- name: audit_unsealed
-- The oldest first. An entry that commits late has a smaller id than sealed ones, and is found nevertheless.
SELECT audit_id, at, call_id, who, token_id, role, action, subject, project_id, outcome, detail, source, seal_no
  FROM {ops}.audit
 WHERE seal_no IS NULL AND audit_id > $1
 ORDER BY audit_id
 LIMIT $2

-- name: audit_of_seals
SELECT audit_id, at, call_id, who, token_id, role, action, subject, project_id, outcome, detail, source, seal_no
  FROM {ops}.audit
 WHERE seal_no BETWEEN $1 AND $2
 ORDER BY seal_no, audit_id

-- name: seal_lock (postgres)
-- Lets one process at a time extend or shorten the chain. Readers do not wait.
-- Differs: SQLite has one writer at a time.
LOCK TABLE {ops}.audit_seals IN SHARE ROW EXCLUSIVE MODE

-- name: seal_lock (sqlite)
SELECT 1

-- name: seal_last
SELECT seal_no, sealed_at, previous, entries, hash, pruned_at
  FROM {ops}.audit_seals
 ORDER BY seal_no DESC
 LIMIT 1

-- name: seal_add
INSERT INTO {ops}.audit_seals (seal_no, sealed_at, previous, entries, hash, newest_at)
VALUES ($1, $2, $3, $4, $5, $6)

-- name: seal_entries (postgres)
-- Differs: JSON is read by another function.
UPDATE {ops}.audit SET seal_no = $1
 WHERE seal_no IS NULL
   AND audit_id IN (SELECT CAST(e.value ->> 'audit_id' AS bigint) FROM jsonb_array_elements($2) e)

-- name: seal_entries (sqlite)
UPDATE {ops}.audit SET seal_no = $1
 WHERE seal_no IS NULL AND audit_id IN (SELECT j.value ->> '$.audit_id' FROM json_each($2) j)

-- name: seal_page
-- The oldest first.
SELECT seal_no, sealed_at, previous, entries, hash, pruned_at
  FROM {ops}.audit_seals
 WHERE seal_no > $1 AND ($2 IS NULL OR sealed_at >= $2)
 ORDER BY seal_no
 LIMIT $3

-- name: seal_head
-- Counts of the log beside its newest seal. The count stops at 100000.
SELECT (SELECT count(*) FROM (SELECT 1 AS one FROM {ops}.audit WHERE seal_no IS NULL LIMIT 100000) open_entries)
           AS unsealed,
       (SELECT max(a.seal_no) FROM {ops}.audit a WHERE a.seal_no IS NOT NULL) AS named

-- name: seal_expired
-- The oldest seals whose entries are all older than $1.
SELECT s.seal_no AS value
  FROM {ops}.audit_seals s
 WHERE s.pruned_at IS NULL AND s.newest_at < $1
   AND NOT EXISTS (SELECT 1 FROM {ops}.audit_seals o
                    WHERE o.seal_no < s.seal_no AND o.pruned_at IS NULL AND o.newest_at >= $1)
 ORDER BY s.seal_no
 LIMIT $2

-- name: seal_prune
UPDATE {ops}.audit_seals SET entries = '[]', pruned_at = $2 WHERE seal_no = $1 AND pruned_at IS NULL

-- name: seal_prune_entries
DELETE FROM {ops}.audit WHERE seal_no = $1

-- name: seal_prune_older
-- The emptied seal $1 is the anchor now.
DELETE FROM {ops}.audit_seals WHERE seal_no < $1
