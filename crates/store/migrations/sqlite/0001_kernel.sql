-- The kernel: projects, runs, their record, workers, flags, schedules.
-- Differs: times are microseconds, JSON and lists of words are JSON texts, truth is 0 or 1 (see codec.rs). STRICT
-- and the checks without a name stand for the types that PostgreSQL has and SQLite lacks. The default times are
-- milliseconds: SQLite's clock has no more.
-- Everything here and in the triggers is understood by SQLite 3.38 and newer, because a newer word in the schema
-- would lock an operator's own sqlite3 out of the whole file.

CREATE TABLE projects (
    project_id TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    repo_slug  TEXT UNIQUE,
    metadata   TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),
    created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    updated_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    CONSTRAINT project_id_is_a_name CHECK (project_id GLOB '[a-z0-9]*' AND project_id NOT GLOB '*[^a-z0-9-]*')
) STRICT;

CREATE TABLE environments (
    env_id         TEXT NOT NULL PRIMARY KEY,
    project_id     TEXT NOT NULL REFERENCES projects,
    env_type       TEXT NOT NULL,
    branch_pattern TEXT,
    config         TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(config)),
    created_at     INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    CONSTRAINT environment_name_is_a_name CHECK (env_type GLOB '[a-z0-9]*' AND env_type NOT GLOB '*[^a-z0-9-]*'),
    UNIQUE (project_id, env_type)
) STRICT;

-- A shelf holds the runs of one project that need the same labels. Claims look at the head of each shelf, so that
-- runs nobody here can take never stand in the way of those somebody can.
-- Differs: no scan_* columns. They step over row versions that a long transaction keeps alive; here are none.
CREATE TABLE shelves (
    shelf_id   INTEGER PRIMARY KEY,
    project_id TEXT NOT NULL,
    labels     TEXT NOT NULL CHECK (json_valid(labels)),
    UNIQUE (project_id, labels)
) STRICT;

-- Differs: two checks hold only in one direction, because a row trigger here cannot change the row before they look
-- at it: a plain `UPDATE runs SET status = 'cancelled'` has a gate and no end for a moment, until the trigger
-- run_c_by_hand completes it. The other direction is held by run_c_by_hand, run_c_gate and run_by_hand_whole.
CREATE TABLE runs (
    run_id              TEXT NOT NULL PRIMARY KEY,
    project_id          TEXT NOT NULL,
    env_id              TEXT NOT NULL,
    lane                TEXT NOT NULL DEFAULT 'ops',
    status              TEXT NOT NULL DEFAULT 'queued',
    gate                TEXT DEFAULT 'open',
    git_sha             TEXT,
    git_ref             TEXT,
    metadata            TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),
    -- The metadata as it was asked for, once a report has changed it: what a successor starts with.
    input               TEXT CHECK (input IS NULL OR json_valid(input)),
    idempotency_key     TEXT,
    -- The whole request, kept where a key may ask for it again.
    request             TEXT CHECK (request IS NULL OR json_valid(request)),
    priority            INTEGER NOT NULL DEFAULT 0,
    -- Differs: 0, which is no shelf, where a plain INSERT names none; the trigger run_by_hand finds one.
    shelf_id            INTEGER NOT NULL DEFAULT 0,
    concurrency_key     TEXT,
    ready_at            INTEGER NOT NULL
        DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    available_at        INTEGER,
    expires_at          INTEGER,
    timeout_secs        INTEGER,
    attempt             INTEGER NOT NULL DEFAULT 1,
    failures            INTEGER NOT NULL DEFAULT 0,
    losses              INTEGER NOT NULL DEFAULT 0,
    max_attempts        INTEGER NOT NULL DEFAULT 1,
    max_losses          INTEGER NOT NULL DEFAULT 3,
    backoff_secs        INTEGER NOT NULL DEFAULT 5,
    retry_of            TEXT,
    claimed_by          TEXT,
    worker_id           TEXT,
    claim_request       TEXT,
    epoch               INTEGER NOT NULL DEFAULT 0,
    lease_secs          INTEGER,
    lease_until         INTEGER,
    deadline_at         INTEGER,
    cancel_requested_at INTEGER,
    cancel_requested_by TEXT,
    cancel_reason       TEXT,
    cancel_deadline_at  INTEGER,
    end_cause           TEXT,
    queued_at           INTEGER NOT NULL
        DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    started_at          INTEGER,
    finished_at         INTEGER,
    created_at          INTEGER NOT NULL
        DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    updated_at          INTEGER NOT NULL
        DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    -- When the sweeper has to look at the run. Derived, so that a plain SQL statement cannot forget it.
    -- Differs: min() is NULL where least() passes a NULL over, so the largest integer stands for never.
    attention_at        INTEGER GENERATED ALWAYS AS (
        CASE WHEN status = 'queued'
                 THEN nullif(min(CASE WHEN gate = 'time' THEN coalesce(available_at, 9223372036854775807)
                                      ELSE 9223372036854775807 END,
                                 coalesce(expires_at, 9223372036854775807)), 9223372036854775807)
             WHEN status IN ('claimed', 'running')
                 THEN nullif(min(coalesce(lease_until, 9223372036854775807),
                                 coalesce(deadline_at, 9223372036854775807),
                                 coalesce(cancel_deadline_at, 9223372036854775807)), 9223372036854775807)
        END) VIRTUAL,
    CONSTRAINT run_id_is_a_run_id CHECK (run_id GLOB 'run-*'),
    CONSTRAINT run_lane_is_known CHECK (lane IN ('ops', 'graph', 'sync')),
    CONSTRAINT run_status_is_known
        CHECK (status IN ('queued', 'claimed', 'running', 'success', 'failed', 'cancelled')),
    CONSTRAINT run_gate_is_known CHECK (gate IN ('open', 'time', 'key')),
    CONSTRAINT run_has_a_gate_while_queued CHECK (status <> 'queued' OR gate IS NOT NULL),
    CONSTRAINT run_has_a_claimer_while_held CHECK (status NOT IN ('claimed', 'running') OR claimed_by IS NOT NULL),
    CONSTRAINT run_finished_iff_final CHECK (status IN ({run_terminal}) OR finished_at IS NULL)
) STRICT;

CREATE INDEX runs_ready ON runs (shelf_id, priority DESC, ready_at, run_id) WHERE gate = 'open';
CREATE INDEX runs_in_line ON runs (project_id, concurrency_key, priority DESC, ready_at, run_id)
    WHERE gate = 'key';
CREATE INDEX runs_not_yet ON runs (available_at) WHERE gate = 'time';
CREATE INDEX runs_attention ON runs (attention_at) WHERE attention_at IS NOT NULL;
CREATE INDEX runs_held ON runs (claimed_by, claim_request) WHERE status IN ('claimed', 'running');
CREATE UNIQUE INDEX runs_idempotency ON runs (project_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX runs_successor ON runs (retry_of) WHERE retry_of IS NOT NULL;

-- Differs: kept in the order of its key, so that an event is written once and not into an index besides.
CREATE TABLE run_events (
    run_id     TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    event_id   TEXT NOT NULL GENERATED ALWAYS AS ('evt-' || substr(run_id, 5) || '-' || seq) VIRTUAL,
    kind       TEXT NOT NULL DEFAULT 'log',
    level      TEXT NOT NULL,
    message    TEXT NOT NULL,
    payload    TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(payload)),
    event_key  TEXT,
    -- What makes an append the same as an earlier one: the key, or a digest of level, message and payload.
    same_as    TEXT,
    -- Differs: there are no users to name.
    actor      TEXT NOT NULL DEFAULT 'local',
    created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    PRIMARY KEY (run_id, seq),
    CONSTRAINT event_kind_is_known CHECK (kind IN ('log', 'transition', 'refusal', 'request')),
    CONSTRAINT event_level_is_known CHECK (level IN ('debug', 'info', 'warn', 'error'))
) STRICT, WITHOUT ROWID;
CREATE INDEX run_events_same ON run_events (run_id, same_as) WHERE same_as IS NOT NULL;

CREATE TABLE artifacts (
    artifact_id   TEXT NOT NULL PRIMARY KEY,
    run_id        TEXT NOT NULL,
    artifact_type TEXT NOT NULL,
    url           TEXT NOT NULL,
    digest        TEXT,
    size_bytes    INTEGER,
    metadata      TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),
    created_at    INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    UNIQUE (run_id, artifact_type, url)
) STRICT;

-- The one run of a key that may be claimed, is claimed or is running; the others stand in line.
CREATE TABLE concurrency_keys (
    project_id      TEXT NOT NULL,
    concurrency_key TEXT NOT NULL,
    head_run_id     TEXT,
    PRIMARY KEY (project_id, concurrency_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX concurrency_keys_headless ON concurrency_keys (project_id) WHERE head_run_id IS NULL;

CREATE TABLE workers (
    worker_id  TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    host       TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    labels     TEXT NOT NULL CHECK (json_valid(labels)),
    version    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at    INTEGER NOT NULL,
    -- Whether it listens for a wake-up.
    waiting    INTEGER NOT NULL DEFAULT 0 CHECK (waiting IN (0, 1)),
    ended_at   INTEGER,
    end_cause  TEXT,
    CONSTRAINT worker_end_is_known CHECK (end_cause IN ('stopped', 'dead'))
) STRICT;

CREATE TABLE flags (
    flag     TEXT NOT NULL,
    scope    TEXT NOT NULL,
    note     TEXT,
    since    INTEGER NOT NULL,
    until_at INTEGER,
    set_by   TEXT,
    PRIMARY KEY (flag, scope),
    CONSTRAINT flag_is_known CHECK (flag IN ('paused'))
) STRICT;

CREATE TABLE schedules (
    schedule_id  TEXT NOT NULL PRIMARY KEY,
    project_id   TEXT NOT NULL REFERENCES projects,
    cron         TEXT NOT NULL,
    time_zone    TEXT NOT NULL,
    request      TEXT NOT NULL CHECK (json_valid(request)),
    missed       TEXT NOT NULL,
    overlap      TEXT NOT NULL,
    paused_at    INTEGER,
    paused_note  TEXT,
    next_fire_at INTEGER,
    last_fire_at INTEGER,
    last_run_id  TEXT,
    created_at   INTEGER NOT NULL,
    CONSTRAINT schedule_missed_is_known CHECK (missed IN ('skip', 'once', 'all')),
    CONSTRAINT schedule_overlap_is_known CHECK (overlap IN ('allow', 'skip'))
) STRICT;

-- One row per schedule and fire time, whatever was decided: the primary key is what makes it fire once.
CREATE TABLE schedule_fires (
    schedule_id TEXT NOT NULL,
    fire_at     INTEGER NOT NULL,
    decision    TEXT NOT NULL,
    run_id      TEXT,
    decided_at  INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, fire_at),
    CONSTRAINT fire_decision_is_known CHECK (decision IN ('queued', 'missed', 'overlapped'))
) STRICT;
