-- Lists of runs by what people ask for, and requests that are asked twice. A run that has no commit, succeeds and is of
-- lane ops enters one of these indexes, and none of their columns changes while it lives: a claim or a finish that
-- changes no other index stays cheap.

-- By environment; by project as well, which is the few environments that it has.
CREATE INDEX runs_of_env ON {ops}.runs (env_id, run_id);
CREATE INDEX runs_of_lane ON {ops}.runs (lane, run_id) WHERE lane <> 'ops';
-- The runs of a feed's syncs carry its name in their concurrency key.
CREATE INDEX runs_of_feed ON {ops}.runs (concurrency_key, run_id) WHERE lane = 'sync';
-- Differs: a prefix is a range only where texts are compared byte by byte, which SQLite does unless told otherwise.
CREATE INDEX runs_of_sha ON {ops}.runs (git_sha COLLATE "C", run_id) WHERE git_sha IS NOT NULL;
CREATE INDEX runs_of_ref ON {ops}.runs (git_ref COLLATE "C", run_id) WHERE git_ref IS NOT NULL;

-- Runs that failed or were cancelled, by how they ended. A table and not an index: an index that names the status would
-- make the step from claimed to running write every index of the run anew. Triggers keep it.
CREATE TABLE {ops}.run_ends (
    status text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (status, run_id)
);
INSERT INTO {ops}.run_ends (status, run_id)
SELECT status, run_id FROM {ops}.runs WHERE status IN ('failed', 'cancelled');

-- What was answered to a request that carries a key: asked again, it gets the same answer. Kept for a day.
CREATE TABLE {ops}.request_keys (
    -- Whose key it is: callers do not meet in each other's keys.
    scope      text COLLATE "C" NOT NULL,
    route      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    -- SHA-256 of the request, so that another one under the same key is told from it.
    body_hash  text COLLATE "C" NOT NULL,
    answer     jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (scope, route, key)
);
CREATE INDEX request_keys_old ON {ops}.request_keys (created_at);
