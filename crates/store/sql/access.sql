-- Tokens and browser sessions.

-- name: token_lock (postgres)
-- Serializes the creation of the first token.
-- Differs: several servers may start at once. SQLite has one writer at a time.
LOCK TABLE {ops}.tokens IN SHARE ROW EXCLUSIVE MODE

-- name: token_lock (sqlite)
SELECT 1

-- name: token_admins
-- Counts the valid admin tokens, without the one that is being created.
SELECT count(*) AS value FROM {ops}.tokens
 WHERE role = 'admin' AND projects IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)
   AND token_id <> $2

-- name: token_unknown_project (postgres)
-- The first of these projects that does not exist.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT n.name AS value FROM unnest($1::text[]) AS n (name)
 WHERE NOT EXISTS (SELECT 1 FROM {ops}.projects p WHERE p.project_id = n.name)
 ORDER BY n.name LIMIT 1

-- name: token_unknown_project (sqlite)
SELECT n.value AS value FROM json_each($1) n
 WHERE NOT EXISTS (SELECT 1 FROM {ops}.projects p WHERE p.project_id = n.value)
 ORDER BY n.value LIMIT 1

-- name: token_add
-- A repeated request after a lost answer changes nothing.
INSERT INTO {ops}.tokens (token_id, name, hash, role, projects, created_at, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (token_id) DO UPDATE SET hash = excluded.hash

-- name: token_list
-- The youngest first: ids sort by age.
SELECT token_id, name, role, projects, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at
  FROM {ops}.tokens
 WHERE ($1 IS NULL OR projects = $1)
   AND ($2 IS NULL OR token_id < $2)
 ORDER BY token_id DESC
 LIMIT $3

-- name: token_get
SELECT token_id, name, role, projects, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at
  FROM {ops}.tokens WHERE token_id = $1 AND ($2 IS NULL OR projects = $2)

-- name: token_hold (postgres)
-- Reads and locks a token, so that two agents cannot be bound to it at the same time.
-- Differs: SQLite has one writer at a time and needs no row locks.
SELECT token_id, name, role, projects, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at
  FROM {ops}.tokens WHERE token_id = $1 FOR NO KEY UPDATE

-- name: token_hold (sqlite)
SELECT token_id, name, role, projects, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at
  FROM {ops}.tokens WHERE token_id = $1

-- name: token_revoke
-- The first revocation stays on record.
UPDATE {ops}.tokens SET revoked_at = $3, revoked_by = $4
 WHERE token_id = $1 AND ($2 IS NULL OR projects = $2) AND revoked_at IS NULL

-- name: token_find
SELECT token_id, name, role, projects, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at,
       hash
  FROM {ops}.tokens WHERE hash = $1

-- name: token_use
-- Written at most once per interval, however many processes use the token.
UPDATE {ops}.tokens SET last_used_at = $2
 WHERE token_id = $1 AND (last_used_at IS NULL OR last_used_at <= $3)

-- name: session_find
SELECT t.token_id, t.name, t.role, t.projects, t.created_at, t.created_by, t.expires_at, t.revoked_at,
       t.revoked_by, t.last_used_at, s.hash, s.expires_at AS session_ends_at, s.last_used_at AS session_used_at
  FROM {ops}.sessions s JOIN {ops}.tokens t ON t.token_id = s.token_id
 WHERE s.hash = $1

-- name: secret_good (postgres)
-- The hashes in $1 that belong to a valid token or session.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
SELECT t.hash AS value FROM {ops}.tokens t
 WHERE t.hash = ANY ($1) AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $2)
UNION ALL
SELECT s.hash FROM {ops}.sessions s JOIN {ops}.tokens t ON t.token_id = s.token_id
 WHERE s.hash = ANY ($1) AND s.expires_at > $2
   AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $2)

-- name: secret_good (sqlite)
SELECT t.hash AS value FROM {ops}.tokens t
 WHERE t.hash IN (SELECT j.value FROM json_each($1) j)
   AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $2)
UNION ALL
SELECT s.hash FROM {ops}.sessions s JOIN {ops}.tokens t ON t.token_id = s.token_id
 WHERE s.hash IN (SELECT j.value FROM json_each($1) j) AND s.expires_at > $2
   AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $2)

-- name: session_use
UPDATE {ops}.sessions SET last_used_at = $2
 WHERE hash = $1 AND (last_used_at IS NULL OR last_used_at <= $3)

-- name: session_add
INSERT INTO {ops}.sessions (hash, token_id, created_at, expires_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (hash) DO UPDATE SET expires_at = excluded.expires_at

-- name: session_trim
-- Limits the number of sessions per token: the oldest are removed.
DELETE FROM {ops}.sessions
 WHERE token_id = $1
   AND hash NOT IN (SELECT s.hash FROM {ops}.sessions s WHERE s.token_id = $1 ORDER BY s.created_at DESC, s.hash
                     LIMIT $2)

-- name: session_remove
DELETE FROM {ops}.sessions WHERE hash = $1
