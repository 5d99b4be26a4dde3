-- Lane 2: graphs, their jobs and tasks, agents, pools, and who controls.
-- Differs: types, as in 0001_kernel.sql (see codec.rs).
-- Only the holder of the controller's lease changes the state of a job. Everybody else writes columns of its own, and
-- names the job in job_changes in the same transaction.

CREATE TABLE graphs (
    run_id        TEXT NOT NULL PRIMARY KEY,
    project_id    TEXT NOT NULL,
    name          TEXT,
    workspace     TEXT NOT NULL,
    -- SHA-256 of the definition.
    digest        TEXT NOT NULL,
    only_jobs     TEXT NOT NULL DEFAULT '[]',
    rerun_needed  INTEGER NOT NULL DEFAULT 0,
    submitted_by  TEXT NOT NULL,
    cancelled_at  INTEGER,
    cancelled_by  TEXT,
    cancel_reason TEXT,
    created_at    INTEGER NOT NULL
) STRICT;

CREATE TABLE jobs (
    job_id       TEXT NOT NULL PRIMARY KEY,
    run_id       TEXT NOT NULL,
    position     INTEGER NOT NULL,
    project_id   TEXT NOT NULL,
    workspace    TEXT NOT NULL,
    name         TEXT NOT NULL,
    spec         TEXT NOT NULL,
    requested    INTEGER NOT NULL,
    reused_from  TEXT,
    -- What the controller asks of every job again and again, taken out of the spec.
    labels       TEXT NOT NULL,
    weight       INTEGER NOT NULL,
    pool         TEXT,
    retries      INTEGER NOT NULL,
    -- Seconds of silence after which the job is lost; without them it waits for its agent.
    lost_secs    INTEGER,
    -- The controller's own columns.
    code         TEXT NOT NULL DEFAULT 'created',
    message      TEXT,
    errors       INTEGER NOT NULL DEFAULT 0,
    failures     INTEGER NOT NULL DEFAULT 0,
    not_before   INTEGER,
    task_number  INTEGER NOT NULL DEFAULT 0,
    task_id      TEXT,
    agent_id     TEXT,
    exit_code    INTEGER,
    -- Whether an order to stop its last task is not confirmed yet: it keeps its room until then.
    stopping     INTEGER NOT NULL DEFAULT 0,
    version      INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    started_at   INTEGER,
    ended_at     INTEGER,
    updated_at   INTEGER NOT NULL,
    -- The columns of people.
    cancelled_at INTEGER,
    cancelled_by TEXT,
    UNIQUE (run_id, position),
    UNIQUE (run_id, name),
    CONSTRAINT job_code_is_known CHECK (code IN (
            'created', 'paused', 'waiting_on_dependencies', 'waiting_on_workers', 'waiting_on_pool',
            'waiting_db_maintenance', 'waiting_on_reboot', 'waiting_on_new_task', 'initiated', 'preparing',
            'prepared', 'executing', 'error', 'executed', 'finalizing', 'finalized', 'succeeded',
            'dependency_failed', 'nonzero_exit', 'cancelled_by_user', 'unmatched_patterns', 'job_error')),
    CONSTRAINT job_is_over_iff_ended CHECK ((ended_at IS NOT NULL) = (code IN (
            'succeeded', 'dependency_failed', 'nonzero_exit', 'cancelled_by_user', 'unmatched_patterns',
            'job_error'))),
    CONSTRAINT job_weight_is_positive CHECK (weight > 0)
) STRICT;
-- What a controller reads whole: however many jobs have ended, it stays as large as what lives.
CREATE INDEX jobs_live ON jobs (job_id) WHERE ended_at IS NULL OR stopping;
CREATE INDEX jobs_live_of_run ON jobs (run_id) WHERE ended_at IS NULL OR stopping;
CREATE INDEX jobs_latest ON jobs (project_id, workspace, name, run_id);
CREATE INDEX jobs_changed ON jobs (run_id, version);

CREATE TABLE job_needs (
    job_id TEXT NOT NULL,
    needs  TEXT NOT NULL,
    PRIMARY KEY (job_id, needs)
) STRICT;

-- What the controller has to look at: a job, or a whole run where it is new or was cancelled. The version tells whether
-- something came on top while it looked.
CREATE TABLE job_changes (
    subject TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT;

-- Every change of a job's code. A trigger writes it.
CREATE TABLE job_events (
    job_id    TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    from_code TEXT NOT NULL,
    to_code   TEXT NOT NULL,
    message   TEXT,
    at        INTEGER NOT NULL,
    PRIMARY KEY (job_id, seq)
) STRICT;

CREATE TABLE tasks (
    task_id    TEXT NOT NULL PRIMARY KEY,
    job_id     TEXT NOT NULL,
    run_id     TEXT NOT NULL,
    kind       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    agent_id   TEXT NOT NULL,
    cancels    TEXT,
    -- The controller's columns.
    active     INTEGER NOT NULL DEFAULT 1,
    end_cause  TEXT,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER,
    -- The agent's columns.
    stage      TEXT,
    stage_at   INTEGER,
    result     TEXT,
    result_at  INTEGER,
    unknown    TEXT NOT NULL DEFAULT '[]',
    log_bytes  INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT task_kind_is_known CHECK (kind IN ('RUNJOB', 'CANCELJOB')),
    CONSTRAINT task_end_is_known CHECK (end_cause IN ('taken', 'stopped', 'withdrawn', 'lost', 'forgotten')),
    CONSTRAINT task_is_over_iff_ended CHECK (active = (ended_at IS NULL)),
    CONSTRAINT task_cancels_iff_it_is_a_cancel CHECK ((kind = 'CANCELJOB') = (cancels IS NOT NULL)),
    CONSTRAINT task_stage_is_known CHECK (
        stage IN ('preparing', 'prepared', 'executing', 'error', 'executed', 'finalizing', 'finalized'))
) STRICT;
CREATE UNIQUE INDEX tasks_one_active ON tasks (job_id) WHERE active AND kind = 'RUNJOB';
CREATE INDEX tasks_of_agent ON tasks (agent_id) WHERE active;
CREATE INDEX tasks_of_job ON tasks (job_id, number);

CREATE TABLE job_outputs (
    job_id     TEXT NOT NULL,
    task_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    path       TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    sha256     TEXT NOT NULL,
    url        TEXT,
    -- The job and the agent that made it: others than its own where the result was taken over.
    made_by    TEXT NOT NULL,
    agent_id   TEXT,
    PRIMARY KEY (job_id, task_id, name, path)
) STRICT;

CREATE TABLE task_logs (
    task_id TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    lines   TEXT NOT NULL,
    bytes   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (task_id, seq)
) STRICT;

CREATE TABLE agents (
    agent_id      TEXT NOT NULL PRIMARY KEY,
    name          TEXT NOT NULL,
    host          TEXT NOT NULL,
    labels        TEXT NOT NULL,
    capacity      INTEGER NOT NULL,
    version       TEXT NOT NULL,
    project_id    TEXT,
    -- The token that it first came with: no other may speak for it.
    token_id      TEXT,
    -- The process that speaks for it: an earlier one is refused.
    boot_id       TEXT NOT NULL,
    draining      INTEGER NOT NULL DEFAULT 0,
    registered_at INTEGER NOT NULL,
    seen_at       INTEGER NOT NULL,
    left_at       INTEGER,
    forgotten_at  INTEGER,
    CONSTRAINT agent_capacity_is_positive CHECK (capacity > 0)
) STRICT;

CREATE TABLE pools (
    name TEXT NOT NULL PRIMARY KEY,
    size INTEGER NOT NULL,
    CONSTRAINT pool_size_is_not_negative CHECK (size >= 0)
) STRICT;
INSERT INTO pools (name, size) VALUES ('database', 4);

-- Who controls. A takeover raises the epoch, so that whoever controlled before changes nothing any more. The version is
-- the last one that a job got: only the holder raises it, so there are no gaps.
CREATE TABLE controller_leases (
    site     TEXT NOT NULL PRIMARY KEY,
    holder   TEXT,
    name     TEXT,
    epoch    INTEGER NOT NULL DEFAULT 0,
    until_at INTEGER,
    since    INTEGER,
    version  INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO controller_leases (site) VALUES ('default');

-- Flags of graphs, and who set them: what a probe finds never changes what a person set.
-- Differs: SQLite changes no constraint of a table that exists, so the table is made anew.
CREATE TABLE flags_anew (
    flag     TEXT NOT NULL,
    scope    TEXT NOT NULL,
    note     TEXT,
    since    INTEGER NOT NULL,
    until_at INTEGER,
    set_by   TEXT,
    source   TEXT NOT NULL DEFAULT 'manual',
    PRIMARY KEY (flag, scope),
    CONSTRAINT flag_is_known CHECK (flag IN ('paused', 'maintenance', 'reboot', 'probe_off')),
    CONSTRAINT flag_source_is_known CHECK (source IN ('manual', 'probe'))
) STRICT;
INSERT INTO flags_anew (flag, scope, note, since, until_at, set_by)
SELECT flag, scope, note, since, until_at, set_by FROM flags;
DROP TABLE flags;
ALTER TABLE flags_anew RENAME TO flags;
