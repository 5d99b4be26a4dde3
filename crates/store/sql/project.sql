-- Projects, environments, flags and request keys.

-- name: project_create
INSERT INTO {ops}.projects (project_id, name, created_at, updated_at) VALUES ($1, $1, $2, $2)
ON CONFLICT (project_id) DO NOTHING

-- name: project_list
SELECT project_id, created_at FROM {ops}.projects ORDER BY project_id

-- name: environment_create
INSERT INTO {ops}.environments (env_id, project_id, env_type, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (project_id, env_type) DO NOTHING

-- name: environment_list
SELECT project_id, env_type FROM {ops}.environments ORDER BY project_id, env_type

-- name: environment_ids
SELECT env_id AS value FROM {ops}.environments
 WHERE (CAST($1 AS text) IS NULL OR project_id = $1) AND (CAST($2 AS text) IS NULL OR env_type = $2)
 ORDER BY env_id LIMIT $3

-- name: request_key_take
-- A second caller waits until the first commits, and then finds its answer.
INSERT INTO {ops}.request_keys (scope, route, key, body_hash, answer, created_at)
VALUES ($1, $2, $3, $4, $5, coalesce($6, {now}))
ON CONFLICT (scope, route, key) DO NOTHING

-- name: request_key_get
SELECT body_hash, answer FROM {ops}.request_keys WHERE scope = $1 AND route = $2 AND key = $3

-- name: request_key_answer
UPDATE {ops}.request_keys SET answer = $4 WHERE scope = $1 AND route = $2 AND key = $3

-- name: flag_set
-- A probe never changes a flag that an operator set, unless that flag has expired. Equal values change no row.
INSERT INTO {ops}.flags AS f (flag, scope, note, since, until_at, set_by, source) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (flag, scope) DO UPDATE SET note = excluded.note, until_at = excluded.until_at, set_by = excluded.set_by,
       source = excluded.source, since = CASE WHEN f.until_at <= excluded.since THEN excluded.since ELSE f.since END
 WHERE (excluded.source = 'manual' OR f.source = 'probe' OR f.until_at <= excluded.since)
   AND (f.note IS DISTINCT FROM excluded.note OR f.until_at IS DISTINCT FROM excluded.until_at
     OR f.set_by IS DISTINCT FROM excluded.set_by OR f.source <> excluded.source OR f.until_at <= excluded.since)

-- name: flag_clear
DELETE FROM {ops}.flags WHERE flag = $1 AND scope = $2

-- name: flag_list
SELECT flag, scope, note, since, until_at, set_by, source FROM {ops}.flags ORDER BY scope, flag

-- name: flag_probe_clear
DELETE FROM {ops}.flags WHERE flag = 'maintenance' AND scope = $1 AND source = 'probe' AND set_by = $2
