-- The kernel: projects, runs, their record, workers, flags, schedules.
-- Foreign keys are left out where a row is written on the hot path: each would lock the same parent row for every
-- run of a project. The functions check what the keys would have checked.

CREATE TABLE {ops}.projects (
    project_id text COLLATE "C" PRIMARY KEY,
    name       text NOT NULL,
    repo_slug  text UNIQUE,
    metadata   jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT project_id_is_a_name CHECK (project_id ~ '^[a-z0-9][a-z0-9-]*$')
);

CREATE TABLE {ops}.environments (
    env_id         text COLLATE "C" PRIMARY KEY,
    project_id     text COLLATE "C" NOT NULL REFERENCES {ops}.projects,
    env_type       text COLLATE "C" NOT NULL,
    branch_pattern text,
    config         jsonb NOT NULL DEFAULT '{}',
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT environment_name_is_a_name CHECK (env_type ~ '^[a-z0-9][a-z0-9-]*$'),
    UNIQUE (project_id, env_type)
);

-- A shelf holds the runs of one project that need the same labels. Claims look at the head of each shelf, so that
-- runs nobody here can take never stand in the way of those somebody can.
CREATE TABLE {ops}.shelves (
    shelf_id      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id    text COLLATE "C" NOT NULL,
    labels        text[] NOT NULL,
    -- Where claims begin to read while old row versions cannot be removed, and until when that may be trusted.
    scan_priority integer,
    scan_ready_at timestamptz,
    scan_until    timestamptz,
    UNIQUE (project_id, labels)
) WITH (fillfactor = 50);

CREATE DOMAIN {ops}.run_lane AS text COLLATE "C"
    CONSTRAINT run_lane_is_known CHECK (VALUE = ANY ('{ops,graph,sync}'));
CREATE DOMAIN {ops}.run_gate AS text COLLATE "C"
    CONSTRAINT run_gate_is_known CHECK (VALUE = ANY ('{open,time,key}'));
CREATE DOMAIN {ops}.event_kind AS text COLLATE "C"
    CONSTRAINT event_kind_is_known CHECK (VALUE = ANY ('{log,transition,refusal,request}'));
CREATE DOMAIN {ops}.event_level AS text COLLATE "C"
    CONSTRAINT event_level_is_known CHECK (VALUE = ANY ('{debug,info,warn,error}'));

CREATE TABLE {ops}.runs (
    run_id              text COLLATE "C" PRIMARY KEY,
    project_id          text COLLATE "C" NOT NULL,
    env_id              text COLLATE "C" NOT NULL,
    lane                {ops}.run_lane NOT NULL DEFAULT 'ops',
    status              text COLLATE "C" NOT NULL DEFAULT 'queued',
    gate                {ops}.run_gate DEFAULT 'open',
    git_sha             text,
    git_ref             text,
    metadata            jsonb NOT NULL DEFAULT '{}',
    -- The metadata as it was asked for, once a report has changed it: what a successor starts with.
    input               jsonb,
    idempotency_key     text COLLATE "C",
    -- The whole request, kept where a key may ask for it again.
    request             jsonb,
    priority            integer NOT NULL DEFAULT 0,
    shelf_id            integer NOT NULL,
    concurrency_key     text COLLATE "C",
    ready_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    available_at        timestamptz,
    expires_at          timestamptz,
    timeout_secs        integer,
    attempt             integer NOT NULL DEFAULT 1,
    failures            integer NOT NULL DEFAULT 0,
    losses              integer NOT NULL DEFAULT 0,
    max_attempts        integer NOT NULL DEFAULT 1,
    max_losses          integer NOT NULL DEFAULT 3,
    backoff_secs        integer NOT NULL DEFAULT 5,
    retry_of            text COLLATE "C",
    claimed_by          text COLLATE "C",
    worker_id           uuid,
    claim_request       text COLLATE "C",
    epoch               integer NOT NULL DEFAULT 0,
    lease_secs          integer,
    lease_until         timestamptz,
    deadline_at         timestamptz,
    cancel_requested_at timestamptz,
    cancel_requested_by text,
    cancel_reason       text,
    cancel_deadline_at  timestamptz,
    end_cause           text COLLATE "C",
    queued_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at          timestamptz,
    finished_at         timestamptz,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The number of the run's last event. Who changes the status and raises this as well writes the event itself; for
    -- everybody else the triggers write it.
    last_seq            integer NOT NULL DEFAULT 0,
    -- When the sweeper has to look at the run, or a little before: a lease that is renewed leaves it as it is, so that
    -- no index is touched, and the sweeper moves it on. Verbs set it; triggers do so for plain statements.
    -- A derived column would be read and prepared anew for every statement. So are the checks below: short
    -- expressions, and arrays as one constant, make every step cheaper.
    attention_at        timestamptz,
    CONSTRAINT run_id_is_a_run_id CHECK (run_id LIKE 'run-%'),
    CONSTRAINT run_is_whole CHECK (
        CASE WHEN gate IS NOT NULL THEN status = 'queued' AND finished_at IS NULL
             WHEN finished_at IS NULL THEN status = ANY ('{claimed,running}') AND claimed_by IS NOT NULL
             ELSE status = ANY ('{success,failed,cancelled}') END)
) WITH (fillfactor = 75);

CREATE INDEX runs_ready ON {ops}.runs (shelf_id, priority DESC, ready_at, run_id) WHERE gate = 'open';
CREATE INDEX runs_in_line ON {ops}.runs (project_id, concurrency_key, priority DESC, ready_at, run_id)
    WHERE gate = 'key';
CREATE INDEX runs_not_yet ON {ops}.runs (available_at) WHERE gate = 'time';
CREATE INDEX runs_attention ON {ops}.runs (attention_at) WHERE attention_at IS NOT NULL;
-- The request id is in it so that a claim which asks for its own does not read past all that its worker ever held.
-- Held, said without the status: the step from claimed to running then changes no index.
CREATE INDEX runs_held ON {ops}.runs (claimed_by, claim_request) WHERE claimed_by IS NOT NULL AND finished_at IS NULL;
CREATE UNIQUE INDEX runs_idempotency ON {ops}.runs (project_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX runs_successor ON {ops}.runs (retry_of) WHERE retry_of IS NOT NULL;

CREATE TABLE {ops}.run_events (
    run_id     text COLLATE "C" NOT NULL,
    seq        integer NOT NULL,
    -- Made of the run's id and the number. A plain INSERT leaves it out, and a trigger completes such an event.
    event_id   text COLLATE "C" NOT NULL,
    kind       {ops}.event_kind NOT NULL DEFAULT 'log',
    level      {ops}.event_level NOT NULL,
    message    text NOT NULL,
    payload    jsonb NOT NULL DEFAULT '{}',
    event_key  text COLLATE "C",
    -- What makes an append the same as an earlier one: the key, or a digest of level, message and payload.
    same_as    text COLLATE "C",
    actor      text NOT NULL DEFAULT session_user,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, seq)
);
CREATE INDEX run_events_same ON {ops}.run_events (run_id, same_as) WHERE same_as IS NOT NULL;

CREATE TABLE {ops}.artifacts (
    artifact_id   text COLLATE "C" PRIMARY KEY,
    run_id        text COLLATE "C" NOT NULL,
    artifact_type text COLLATE "C" NOT NULL,
    url           text NOT NULL,
    digest        text,
    size_bytes    bigint,
    metadata      jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (run_id, artifact_type, url)
);

-- The one run of a key that may be claimed, is claimed or is running; the others stand in line.
CREATE TABLE {ops}.concurrency_keys (
    project_id      text COLLATE "C" NOT NULL,
    concurrency_key text COLLATE "C" NOT NULL,
    head_run_id     text COLLATE "C",
    PRIMARY KEY (project_id, concurrency_key)
) WITH (fillfactor = 75);
CREATE INDEX concurrency_keys_headless ON {ops}.concurrency_keys (project_id) WHERE head_run_id IS NULL;

CREATE TABLE {ops}.workers (
    worker_id  uuid PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,
    host       text NOT NULL,
    pid        bigint NOT NULL,
    labels     text[] NOT NULL,
    version    text NOT NULL,
    started_at timestamptz NOT NULL,
    beat_at    timestamptz NOT NULL,
    -- Whether it listens for a wake-up.
    waiting    boolean NOT NULL DEFAULT false,
    ended_at   timestamptz,
    end_cause  text COLLATE "C",
    CONSTRAINT worker_end_is_known CHECK (end_cause IN ('stopped', 'dead'))
) WITH (fillfactor = 50);

CREATE TABLE {ops}.flags (
    flag     text COLLATE "C" NOT NULL,
    scope    text COLLATE "C" NOT NULL,
    note     text,
    since    timestamptz NOT NULL,
    until_at timestamptz,
    set_by   text,
    PRIMARY KEY (flag, scope),
    CONSTRAINT flag_is_known CHECK (flag IN ('paused'))
);

CREATE TABLE {ops}.schedules (
    schedule_id  text COLLATE "C" PRIMARY KEY,
    project_id   text COLLATE "C" NOT NULL REFERENCES {ops}.projects,
    cron         text NOT NULL,
    time_zone    text NOT NULL,
    request      jsonb NOT NULL,
    missed       text COLLATE "C" NOT NULL,
    overlap      text COLLATE "C" NOT NULL,
    paused_at    timestamptz,
    paused_note  text,
    next_fire_at timestamptz,
    last_fire_at timestamptz,
    last_run_id  text COLLATE "C",
    created_at   timestamptz NOT NULL,
    CONSTRAINT schedule_missed_is_known CHECK (missed IN ('skip', 'once', 'all')),
    CONSTRAINT schedule_overlap_is_known CHECK (overlap IN ('allow', 'skip'))
);

-- One row per schedule and fire time, whatever was decided: the primary key is what makes it fire once.
CREATE TABLE {ops}.schedule_fires (
    schedule_id text COLLATE "C" NOT NULL,
    fire_at     timestamptz NOT NULL,
    decision    text COLLATE "C" NOT NULL,
    run_id      text COLLATE "C",
    decided_at  timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, fire_at),
    CONSTRAINT fire_decision_is_known CHECK (decision IN ('queued', 'missed', 'overlapped'))
);
