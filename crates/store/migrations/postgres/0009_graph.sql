-- Lane 2: graphs, their jobs and tasks, agents, pools, and who controls.
-- Only the holder of the controller's lease changes the state of a job. Everybody else writes columns of its own, and
-- names the job in job_changes in the same transaction.

CREATE TABLE {ops}.graphs (
    run_id        text COLLATE "C" PRIMARY KEY,
    project_id    text COLLATE "C" NOT NULL,
    name          text,
    workspace     text COLLATE "C" NOT NULL,
    -- SHA-256 of the definition.
    digest        text COLLATE "C" NOT NULL,
    only_jobs     text[] NOT NULL DEFAULT '{}',
    rerun_needed  boolean NOT NULL DEFAULT false,
    submitted_by  text NOT NULL,
    cancelled_at  timestamptz,
    cancelled_by  text,
    cancel_reason text,
    created_at    timestamptz NOT NULL
);

CREATE TABLE {ops}.jobs (
    job_id       text COLLATE "C" PRIMARY KEY,
    run_id       text COLLATE "C" NOT NULL,
    position     integer NOT NULL,
    project_id   text COLLATE "C" NOT NULL,
    workspace    text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    spec         jsonb NOT NULL,
    requested    boolean NOT NULL,
    reused_from  text COLLATE "C",
    -- What the controller asks of every job again and again, taken out of the spec.
    labels       text[] NOT NULL,
    weight       integer NOT NULL,
    pool         text COLLATE "C",
    retries      integer NOT NULL,
    -- Seconds of silence after which the job is lost; without them it waits for its agent.
    lost_secs    integer,
    -- The controller's own columns.
    code         text COLLATE "C" NOT NULL DEFAULT 'created',
    message      text,
    errors       integer NOT NULL DEFAULT 0,
    failures     integer NOT NULL DEFAULT 0,
    not_before   timestamptz,
    task_number  integer NOT NULL DEFAULT 0,
    task_id      text COLLATE "C",
    agent_id     uuid,
    exit_code    integer,
    -- Whether an order to stop its last task is not confirmed yet: it keeps its room until then.
    stopping     boolean NOT NULL DEFAULT false,
    version      bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    started_at   timestamptz,
    ended_at     timestamptz,
    updated_at   timestamptz NOT NULL,
    -- The columns of people.
    cancelled_at timestamptz,
    cancelled_by text,
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
) WITH (fillfactor = 75);
-- What a controller reads whole: however many jobs have ended, it stays as large as what lives.
CREATE INDEX jobs_live ON {ops}.jobs (job_id) WHERE ended_at IS NULL OR stopping;
CREATE INDEX jobs_live_of_run ON {ops}.jobs (run_id) WHERE ended_at IS NULL OR stopping;
CREATE INDEX jobs_latest ON {ops}.jobs (project_id, workspace, name, run_id);
CREATE INDEX jobs_changed ON {ops}.jobs (run_id, version);

CREATE TABLE {ops}.job_needs (
    job_id text COLLATE "C" NOT NULL,
    needs  text COLLATE "C" NOT NULL,
    PRIMARY KEY (job_id, needs)
);

-- What the controller has to look at: a job, or a whole run where it is new or was cancelled. The version tells whether
-- something came on top while it looked.
CREATE TABLE {ops}.job_changes (
    subject text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 50);

-- Every change of a job's code. A trigger writes it.
CREATE TABLE {ops}.job_events (
    job_id    text COLLATE "C" NOT NULL,
    seq       integer NOT NULL,
    from_code text COLLATE "C" NOT NULL,
    to_code   text COLLATE "C" NOT NULL,
    message   text,
    at        timestamptz NOT NULL,
    PRIMARY KEY (job_id, seq)
);

CREATE TABLE {ops}.tasks (
    task_id    text COLLATE "C" PRIMARY KEY,
    job_id     text COLLATE "C" NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    number     integer NOT NULL,
    agent_id   uuid NOT NULL,
    cancels    text COLLATE "C",
    -- The controller's columns.
    active     boolean NOT NULL DEFAULT true,
    end_cause  text COLLATE "C",
    created_at timestamptz NOT NULL,
    ended_at   timestamptz,
    -- The agent's columns.
    stage      text COLLATE "C",
    stage_at   timestamptz,
    result     jsonb,
    result_at  timestamptz,
    unknown    text[] NOT NULL DEFAULT '{}',
    log_bytes  bigint NOT NULL DEFAULT 0,
    CONSTRAINT task_kind_is_known CHECK (kind IN ('RUNJOB', 'CANCELJOB')),
    CONSTRAINT task_end_is_known CHECK (end_cause IN ('taken', 'stopped', 'withdrawn', 'lost', 'forgotten')),
    CONSTRAINT task_is_over_iff_ended CHECK (active = (ended_at IS NULL)),
    CONSTRAINT task_cancels_iff_it_is_a_cancel CHECK ((kind = 'CANCELJOB') = (cancels IS NOT NULL)),
    CONSTRAINT task_stage_is_known CHECK (
        stage IN ('preparing', 'prepared', 'executing', 'error', 'executed', 'finalizing', 'finalized'))
) WITH (fillfactor = 75);
CREATE UNIQUE INDEX tasks_one_active ON {ops}.tasks (job_id) WHERE active AND kind = 'RUNJOB';
CREATE INDEX tasks_of_agent ON {ops}.tasks (agent_id) WHERE active;
CREATE INDEX tasks_of_job ON {ops}.tasks (job_id, number);

CREATE TABLE {ops}.job_outputs (
    job_id     text COLLATE "C" NOT NULL,
    task_id    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    path       text COLLATE "C" NOT NULL,
    size_bytes bigint NOT NULL,
    sha256     text COLLATE "C" NOT NULL,
    url        text,
    -- The job and the agent that made it: others than its own where the result was taken over.
    made_by    text COLLATE "C" NOT NULL,
    agent_id   uuid,
    PRIMARY KEY (job_id, task_id, name, path)
);

CREATE TABLE {ops}.task_logs (
    task_id text COLLATE "C" NOT NULL,
    seq     integer NOT NULL,
    lines   jsonb NOT NULL,
    bytes   bigint NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (task_id, seq)
);

CREATE TABLE {ops}.agents (
    agent_id      uuid PRIMARY KEY,
    name          text NOT NULL,
    host          text NOT NULL,
    labels        text[] NOT NULL,
    capacity      integer NOT NULL,
    version       text NOT NULL,
    project_id    text COLLATE "C",
    -- The token that it first came with: no other may speak for it.
    token_id      uuid,
    -- The process that speaks for it: an earlier one is refused.
    boot_id       uuid NOT NULL,
    draining      boolean NOT NULL DEFAULT false,
    registered_at timestamptz NOT NULL,
    seen_at       timestamptz NOT NULL,
    left_at       timestamptz,
    forgotten_at  timestamptz,
    CONSTRAINT agent_capacity_is_positive CHECK (capacity > 0)
) WITH (fillfactor = 50);

CREATE TABLE {ops}.pools (
    name text COLLATE "C" PRIMARY KEY,
    size integer NOT NULL,
    CONSTRAINT pool_size_is_not_negative CHECK (size >= 0)
);
INSERT INTO {ops}.pools (name, size) VALUES ('database', 4);

-- Who controls. A takeover raises the epoch, so that whoever controlled before changes nothing any more. The version is
-- the last one that a job got: only the holder raises it, so there are no gaps.
CREATE TABLE {ops}.controller_leases (
    site     text COLLATE "C" PRIMARY KEY,
    holder   uuid,
    name     text,
    epoch    bigint NOT NULL DEFAULT 0,
    until_at timestamptz,
    since    timestamptz,
    version  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO {ops}.controller_leases (site) VALUES ('default');

-- Flags of graphs, and who set them: what a probe finds never changes what a person set.
ALTER TABLE {ops}.flags
    DROP CONSTRAINT flag_is_known,
    ADD COLUMN source text COLLATE "C" NOT NULL DEFAULT 'manual',
    ADD CONSTRAINT flag_is_known CHECK (flag IN ('paused', 'maintenance', 'reboot', 'probe_off')),
    ADD CONSTRAINT flag_source_is_known CHECK (source IN ('manual', 'probe'));
