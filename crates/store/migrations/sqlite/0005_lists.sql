-- Lists of runs by what people ask for, and requests that are asked twice. A run that has no commit, succeeds and is of
-- lane ops enters one of these indexes.

-- By environment; by project as well, which is the few environments that it has.
CREATE INDEX runs_of_env ON runs (env_id, run_id);
CREATE INDEX runs_of_lane ON runs (lane, run_id) WHERE lane <> 'ops';
-- The runs of a feed's syncs carry its name in their concurrency key.
CREATE INDEX runs_of_feed ON runs (concurrency_key, run_id) WHERE lane = 'sync';
CREATE INDEX runs_of_sha ON runs (git_sha, run_id) WHERE git_sha IS NOT NULL;
CREATE INDEX runs_of_ref ON runs (git_ref, run_id) WHERE git_ref IS NOT NULL;

-- Runs that failed or were cancelled, by how they ended. Triggers keep it.
CREATE TABLE run_ends (
    status TEXT NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (status, run_id)
) STRICT, WITHOUT ROWID;
INSERT INTO run_ends (status, run_id)
SELECT status, run_id FROM runs WHERE status IN ('failed', 'cancelled');

-- What was answered to a request that carries a key: asked again, it gets the same answer. Kept for a day.
CREATE TABLE request_keys (
    -- Whose key it is: callers do not meet in each other's keys.
    scope      TEXT NOT NULL,
    route      TEXT NOT NULL,
    key        TEXT NOT NULL,
    -- SHA-256 of the request, so that another one under the same key is told from it.
    body_hash  TEXT NOT NULL,
    answer     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, route, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_keys_old ON request_keys (created_at);
