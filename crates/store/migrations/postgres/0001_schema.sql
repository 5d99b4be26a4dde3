-- All tables.
--
-- Foreign keys are left out where rows are written on the hot path: each would lock the same parent row for every run
-- of a project (ADR 9). The functions check the same. Functions and triggers are in sql/kernel.

------------------------------------------------------------------------------
-- Runs: projects, runs and their events, workers, flags, schedules
------------------------------------------------------------------------------

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

-- The runs of one project that require the same labels. A claim compares the first run of each label set that fits, so
-- that runs for other workers cost it nothing (ADR 4).
CREATE TABLE {ops}.label_sets (
    label_set_id  integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id    text COLLATE "C" NOT NULL,
    labels        text[] NOT NULL,
    -- Where claims start to read while old row versions cannot be removed, and until when that holds (ADR 12).
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

-- Columns that a step changes come first, those that never change last. An update writes the log record of a row from
-- the first to the last changed byte, so this order keeps the record short (ADR 34).
CREATE TABLE {ops}.runs (
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until         timestamptz,
    -- When the sweeper has to examine the run, or earlier: renewing a lease leaves it unchanged. Verbs set it; triggers
    -- do for plain SQL statements. A generated column or a check would be prepared again for every statement (ADR 19).
    attention_at        timestamptz,
    started_at          timestamptz,
    finished_at         timestamptz,
    deadline_at         timestamptz,
    cancel_requested_at timestamptz,
    cancel_deadline_at  timestamptz,
    -- When a running run went silent whose worker has promised no heartbeats. The run stays with its worker (ADR 24).
    stalled_at          timestamptz,
    -- The number of the run's last event. A statement that changes the status and raises this writes the event itself;
    -- for other statements the triggers write it.
    last_seq            integer NOT NULL DEFAULT 0,
    epoch               integer NOT NULL DEFAULT 0,
    lease_secs          integer,
    status              text COLLATE "C" NOT NULL DEFAULT 'queued',
    gate                {ops}.run_gate DEFAULT 'open',
    claimed_by          text COLLATE "C",
    claim_request       text COLLATE "C",
    worker_id           uuid,
    end_cause           text COLLATE "C",
    cancel_requested_by text,
    cancel_reason       text,
    metadata            jsonb NOT NULL DEFAULT '{}',
    -- The metadata of the request, once a report has changed it: the metadata of a successor.
    input               jsonb,
    ready_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    queued_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    available_at        timestamptz,
    expires_at          timestamptz,
    priority            integer NOT NULL DEFAULT 0,
    label_set_id        integer NOT NULL,
    timeout_secs        integer,
    attempt             integer NOT NULL DEFAULT 1,
    failures            integer NOT NULL DEFAULT 0,
    losses              integer NOT NULL DEFAULT 0,
    max_attempts        integer NOT NULL DEFAULT 1,
    max_losses          integer NOT NULL DEFAULT 3,
    backoff_secs        integer NOT NULL DEFAULT 5,
    run_id              text COLLATE "C" PRIMARY KEY,
    project_id          text COLLATE "C" NOT NULL,
    env_id              text COLLATE "C" NOT NULL,
    lane                {ops}.run_lane NOT NULL DEFAULT 'ops',
    -- The kind of work, by which a worker chooses the handler. Empty: none.
    kind                text COLLATE "C" NOT NULL DEFAULT '',
    git_sha             text,
    git_ref             text,
    concurrency_key     text COLLATE "C",
    retry_of            text COLLATE "C",
    idempotency_key     text COLLATE "C",
    -- The whole request if it has an idempotency key, to compare repeated requests with.
    request             jsonb
-- A claim and a finish write a new version of the row. Half of each page is kept free, so that the versions stay on the
-- page and are logged as differences. A batch writes 6 % less WAL, and the table is 10 % larger (ADR 34).
) WITH (fillfactor = 50);

-- A claim and a finish write every index that contains the run, and PostgreSQL opens each index for every statement. So
-- there are few: successors are found in run_lookup.
CREATE INDEX runs_ready ON {ops}.runs (label_set_id, priority DESC, ready_at, run_id) WHERE gate = 'open';
CREATE INDEX runs_waiting_for_key ON {ops}.runs (project_id, concurrency_key, priority DESC, ready_at, run_id)
    WHERE gate = 'key';
-- Queued runs that become available or expire. A claim reads those that become available, by gate; only the sweeper
-- reads expired ones.
CREATE INDEX runs_timed ON {ops}.runs (gate, attention_at) WHERE gate IS NOT NULL AND attention_at IS NOT NULL;
-- With claim_request, so that a repeated claim does not read all runs of its worker. Held is expressed without the
-- status, so that the transition from claimed to running changes no index. The sweeper reads all of it.
CREATE INDEX runs_held ON {ops}.runs (claimed_by, claim_request) WHERE claimed_by IS NOT NULL AND finished_at IS NULL;
CREATE UNIQUE INDEX runs_idempotency ON {ops}.runs (project_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- The order of lists, and the time of their filters. Not the id: a caller may choose it (ADR 37).
CREATE INDEX runs_by_age ON {ops}.runs (created_at, run_id);
-- Ended runs, for retention. The finish writes it, which leaves runs_held and thus writes new index entries anyway.
CREATE INDEX runs_ended ON {ops}.runs (finished_at) WHERE finished_at IS NOT NULL;

-- Removed runs of which events, jobs or log pieces are left, which retention removes step by step. Their ids are taken
-- until then.
CREATE TABLE {ops}.removed_runs (
    -- events or jobs.
    part   text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (part, run_id)
);

-- One row per usual step of a run: queued, claimed, started, succeeded or failed. The view run_events shows it as an
-- event with message and payload; storing these would double the cost of a step (ADR 34).
CREATE TABLE {ops}.run_steps (
    -- The transaction that wrote the step: readers of live events compare it with a snapshot. A sequence would not do:
    -- its numbers commit in another order than they are taken. Numbers in commit order would make every commit wait
    -- for the one before.
    xact       bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    created_at timestamptz NOT NULL,
    seq        integer NOT NULL,
    -- q: queued, c: claimed, r: running, s: success, f: failed; the last two as reported by the worker. S and F: a
    -- claimed run was finished, and passed through running. That row is two events, of which `seq` is the second.
    step       "char" NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    actor      text NOT NULL DEFAULT session_user,
    -- The worker of a claim; the payload of a queued event that is not the usual one.
    detail     text,
    -- The environment of the run, only on its first event: lists by environment read runs_of_env.
    env_id     text COLLATE "C"
);
-- A hash index, whose entries do not contain the id: a B-tree over run_id and seq would write 35 bytes more for each
-- step (ADR 34). The numbers are unique, because a step raises last_seq of the locked run in the same transaction.
CREATE INDEX run_steps_of_run ON {ops}.run_steps USING hash (run_id);
-- Without a primary key, logical replication could not publish the removal of a run.
ALTER TABLE {ops}.run_steps REPLICA IDENTITY FULL;
-- Rows are in the table in about the order of their transactions, so a BRIN index suffices. A B-tree would cost each
-- step a page and a lock.
CREATE INDEX run_steps_xact ON {ops}.run_steps USING brin (xact) WITH (pages_per_range = 32, autosummarize = on);
-- Runs by environment, by their first event: it never changes and is indexed once, whereas every claim and every
-- finish writes all indexes of a run again (ADR 19). The time of that event is created_at of the run, which never
-- changes either.
CREATE INDEX runs_of_env ON {ops}.run_steps (env_id, created_at, run_id) WHERE env_id IS NOT NULL;

-- All other events: log lines, refusals, requests, and the less usual transitions.
CREATE TABLE {ops}.run_log (
    run_id     text COLLATE "C" NOT NULL,
    seq        integer NOT NULL,
    -- NULL: derived from the run's id and the number.
    event_id   text COLLATE "C",
    kind       {ops}.event_kind NOT NULL DEFAULT 'log',
    level      {ops}.event_level NOT NULL,
    message    text NOT NULL,
    payload    jsonb NOT NULL DEFAULT '{}',
    event_key  text COLLATE "C",
    -- Identifies repeated appends: the key, or a digest of level, message and payload.
    same_as    text COLLATE "C",
    actor      text NOT NULL DEFAULT session_user,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    xact       bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    PRIMARY KEY (run_id, seq)
);
CREATE INDEX run_log_same ON {ops}.run_log (run_id, same_as) WHERE same_as IS NOT NULL;
CREATE INDEX run_log_xact ON {ops}.run_log USING brin (xact) WITH (pages_per_range = 32, autosummarize = on);

-- All events of runs. A plain INSERT adds one, as the triggers of run_events.sql describe.
CREATE VIEW {ops}.run_events AS
SELECT l.run_id, l.seq, coalesce(l.event_id, 'evt-' || substr(l.run_id, 5) || '-' || l.seq) COLLATE "C" AS event_id,
       l.kind::text COLLATE "C" AS kind, l.level::text COLLATE "C" AS level, l.message, l.payload, l.event_key,
       l.same_as, l.actor, l.created_at, l.xact
  FROM {ops}.run_log l
UNION ALL
SELECT s.run_id, s.seq, 'evt-' || substr(s.run_id, 5) || '-' || s.seq, 'transition',
       CASE WHEN s.step IN ('f', 'F') THEN 'error' ELSE 'info' END,
       CASE s.step WHEN 'q' THEN 'Run queued' WHEN 'c' THEN 'Run claimed by worker' WHEN 'r' THEN 'Run started'
                   WHEN 's' THEN 'Run succeeded' WHEN 'S' THEN 'Run succeeded' ELSE 'Run failed' END,
       CASE s.step WHEN 'q' THEN coalesce(s.detail::jsonb, '{"to": "queued"}')
                   WHEN 'c' THEN jsonb_build_object('from', 'queued', 'to', 'claimed', 'worker_id', s.detail)
                   WHEN 'r' THEN '{"from": "claimed", "to": "running"}'
                   WHEN 's' THEN '{"from": "running", "to": "success", "cause": "reported"}'
                   WHEN 'S' THEN '{"from": "running", "to": "success", "cause": "reported"}'
                   ELSE '{"from": "running", "to": "failed", "cause": "reported"}' END,
       NULL, NULL, s.actor, s.created_at, s.xact
  FROM {ops}.run_steps s
UNION ALL
SELECT s.run_id, s.seq - 1, 'evt-' || substr(s.run_id, 5) || '-' || s.seq - 1, 'transition', 'info', 'Run started',
       '{"from": "claimed", "to": "running"}', NULL, NULL, s.actor, s.created_at, s.xact
  FROM {ops}.run_steps s
 WHERE s.step IN ('S', 'F');

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

-- The head of a key is its only run that may be claimed, is claimed or is running. The other runs wait in line.
CREATE TABLE {ops}.concurrency_keys (
    project_id      text COLLATE "C" NOT NULL,
    concurrency_key text COLLATE "C" NOT NULL,
    head_run_id     text COLLATE "C",
    PRIMARY KEY (project_id, concurrency_key)
) WITH (fillfactor = 75);
CREATE INDEX concurrency_keys_headless ON {ops}.concurrency_keys (project_id) WHERE head_run_id IS NULL;

CREATE TABLE {ops}.workers (
    worker_id   uuid PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    host        text NOT NULL,
    pid         bigint NOT NULL,
    labels      text[] NOT NULL,
    version     text NOT NULL,
    started_at  timestamptz NOT NULL,
    beat_at     timestamptz NOT NULL,
    -- Whether the process listens for a wake-up.
    waiting     boolean NOT NULL DEFAULT false,
    ended_at    timestamptz,
    end_cause   text COLLATE "C",
    -- Whether an operator asked it to drain: it finishes its runs and gets no new ones.
    draining    boolean NOT NULL DEFAULT false,
    -- Runs whose lease the last heartbeat could not renew, because another transaction had locked their rows.
    locked_runs text[],
    CONSTRAINT worker_end_is_known CHECK (end_cause IN ('stopped', 'dead'))
) WITH (fillfactor = 50);

CREATE TABLE {ops}.flags (
    flag     text COLLATE "C" NOT NULL,
    scope    text COLLATE "C" NOT NULL,
    note     text,
    since    timestamptz NOT NULL,
    until_at timestamptz,
    set_by   text,
    source   text COLLATE "C" NOT NULL DEFAULT 'manual',
    PRIMARY KEY (flag, scope),
    CONSTRAINT flag_is_known CHECK (flag IN ('paused', 'maintenance', 'reboot', 'probe_off')),
    CONSTRAINT flag_source_is_known CHECK (source IN ('manual', 'probe'))
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

-- One row per schedule and fire time, for every decision: the primary key ensures that a schedule fires once.
CREATE TABLE {ops}.schedule_fires (
    schedule_id text COLLATE "C" NOT NULL,
    fire_at     timestamptz NOT NULL,
    decision    text COLLATE "C" NOT NULL,
    run_id      text COLLATE "C",
    decided_at  timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, fire_at),
    CONSTRAINT fire_decision_is_known CHECK (decision IN ('queued', 'missed', 'overlapped'))
);

-- Failed and cancelled runs, for lists. A table and not an index: an index on the status would make the transition from
-- claimed to running write every index of the run again. record_end and triggers maintain it.
CREATE TABLE {ops}.unsuccessful_runs (
    status     text COLLATE "C" NOT NULL,
    -- created_at of the run.
    created_at timestamptz NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    PRIMARY KEY (status, created_at, run_id)
);

-- Commit, branch, kind, lane and feed of runs, for lists, and successors. Every claim and every finish writes all
-- indexes of a run again, and opens each index that it could be in. These rows are written once (ADR 22).
CREATE TABLE {ops}.run_lookup (
    -- lane, feed, kind, sha, ref or retry_of.
    kind       text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    -- created_at of the run.
    created_at timestamptz NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, value, created_at, run_id)
);
-- A run has one successor.
CREATE UNIQUE INDEX run_lookup_successor ON {ops}.run_lookup (value) WHERE kind = 'retry_of';

-- Answers to requests with an idempotency key: a repeated request gets the same answer. Kept for a day.
CREATE TABLE {ops}.request_keys (
    -- The caller: keys of different callers are independent.
    scope      text COLLATE "C" NOT NULL,
    route      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    -- SHA-256 of the request, to detect another request with the same key.
    body_hash  text COLLATE "C" NOT NULL,
    answer     jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (scope, route, key)
);
CREATE INDEX request_keys_old ON {ops}.request_keys (created_at);

------------------------------------------------------------------------------
-- Queues: leased messages
------------------------------------------------------------------------------

CREATE TABLE {ops}.queues (
    queue          text COLLATE "C" PRIMARY KEY,
    lock_secs      integer NOT NULL,
    deliveries_max integer NOT NULL,
    -- Seconds for which a completed message is remembered (deduplication window). NULL: not at all.
    window_secs    integer,
    expiry_secs    integer NOT NULL,
    CONSTRAINT queue_name_is_a_name CHECK (queue ~ '^[a-z0-9][a-z0-9-]*$'),
    CONSTRAINT queue_lock_is_positive CHECK (lock_secs > 0),
    CONSTRAINT queue_delivers_at_least_once CHECK (deliveries_max > 0),
    CONSTRAINT queue_window_is_positive CHECK (window_secs > 0),
    CONSTRAINT queue_expiry_is_positive CHECK (expiry_secs > 0)
);

INSERT INTO {ops}.queues (queue, lock_secs, deliveries_max, window_secs, expiry_secs) VALUES
    ('work-items', 120, 5, 600, 86400),
    ('work-done', 60, 3, NULL, 86400),
    ('consolidate', 300, 3, NULL, 86400);

-- A message is one row for its whole life. A completed one stays, without its body, for the deduplication window: the
-- primary key refuses a duplicate from any sender at any time. A second table for completed messages would cost as much
-- to write, and a duplicate could slip between the two. No checks and no foreign keys: each would be prepared again for
-- every statement of the hot path.
CREATE TABLE {ops}.messages (
    queue       text COLLATE "C" NOT NULL,
    message_id  text COLLATE "C" NOT NULL,
    generation  integer NOT NULL,
    -- The group, such as a feed. Groups take turns.
    grp         text COLLATE "C" NOT NULL,
    state       text COLLATE "C" NOT NULL DEFAULT 'live',
    -- NULL once the message is completed.
    body        jsonb,
    run_id      text COLLATE "C",
    trace_id    text COLLATE "C",
    enqueued_at timestamptz NOT NULL,
    -- The position in the queue: when the message was sent or returned, plus its delay. A lock does not change it.
    ready_at    timestamptz NOT NULL,
    -- When the message may be received: after its delay, or when its lock expires.
    visible_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    -- The worker process that holds the message, or held it when it was completed.
    locked_by   uuid,
    epoch       integer NOT NULL DEFAULT 0,
    deliveries  integer NOT NULL DEFAULT 0,
    -- When the message was completed, or became a dead letter.
    ended_at    timestamptz,
    dead_reason text COLLATE "C",
    last_error  text,
    PRIMARY KEY (queue, message_id, generation)
) WITH (fillfactor = 55, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- The only index of the hot path: waiting and locked messages, by group. Receiving and renewing change no indexed
-- column: with free space on its page, the new row version goes there, and no index is written. The price is that a
-- receive reads past locked messages, of which there are few.
CREATE INDEX messages_ready ON {ops}.messages (queue, grp, ready_at) WHERE state = 'live';
CREATE INDEX messages_dead ON {ops}.messages (queue, ended_at, message_id, generation) WHERE state = 'dead';

------------------------------------------------------------------------------
-- Syncs: feeds, partitions, pages, records, prices. Operators know six of these tables by name: they are in {sync}
------------------------------------------------------------------------------

CREATE TABLE {ops}.feeds (
    feed                  text COLLATE "C" PRIMARY KEY,
    project_id            text COLLATE "C" NOT NULL REFERENCES {ops}.projects,
    kind                  text COLLATE "C" NOT NULL,
    endpoint              text NOT NULL,
    username              text,
    -- The name of an environment variable. No password is stored.
    password_env          text,
    rate                  integer NOT NULL,
    settings              jsonb NOT NULL DEFAULT '{}',
    -- The watermark: up to which time of the source the feed is consolidated.
    last_updated_at       timestamptz,
    last_run_id           uuid,
    last_run_completed_at timestamptz,
    -- The destination of the copy of the watermark, the last copied one, and the last error.
    copy_url              text,
    copied_updated_at     timestamptz,
    copied_at             timestamptz,
    copy_error            text,
    -- The circuit breaker. circuit_rev is for compare-and-swap.
    circuit               jsonb NOT NULL DEFAULT '{"state": "closed", "outages": 0}',
    circuit_rev           integer NOT NULL DEFAULT 0,
    circuit_reason        text,
    -- The author of the definition. The operator's lists apply to definitions of projects.
    defined_by            text COLLATE "C" NOT NULL,
    -- The reason for which a process with a narrower configuration refused to reach the feed.
    refusal               text,
    created_at            timestamptz NOT NULL,
    CONSTRAINT feed_author_is_known CHECK (defined_by = ANY ('{operator,project}')),
    CONSTRAINT feed_is_a_name CHECK (feed ~ '^[a-z0-9][a-z0-9-]*$'),
    CONSTRAINT feed_rate_is_not_negative CHECK (rate >= 0)
) WITH (fillfactor = 50);

CREATE TABLE {sync}.run_metadata (
    run_id                     uuid PRIMARY KEY,
    run_type                   text COLLATE "C" NOT NULL,
    expected_workers           integer NOT NULL,
    completed_workers          integer DEFAULT 0,
    failed_workers             integer DEFAULT 0,
    watermark_before           timestamptz,
    watermark_after            timestamptz,
    started_at                 timestamptz DEFAULT now(),
    completed_at               timestamptz,
    feed                       text COLLATE "C" NOT NULL,
    trace_id                   text NOT NULL,
    -- The current run of the sync: the first has the same id, its successors have their own.
    ops_run_id                 text COLLATE "C" NOT NULL,
    state                      text COLLATE "C" NOT NULL,
    updated_from               timestamptz,
    updated_to                 timestamptz NOT NULL,
    page_size                  integer NOT NULL,
    granularity                bigint NOT NULL,
    predicted                  bigint NOT NULL DEFAULT 0,
    count_calls                integer NOT NULL DEFAULT 0,
    scan_ms                    bigint NOT NULL DEFAULT 0,
    -- The counts of the scan by range of the partition field, for display.
    heatmap                    jsonb NOT NULL DEFAULT '[]',
    -- Raised whenever messages are sent again, so that old ones are recognised.
    generation                 integer NOT NULL DEFAULT 0,
    rules_version              integer,
    -- Digest of the feed definition with which the sync reads. NULL for feeds without one.
    definition                 text COLLATE "C",
    -- Consolidate despite failed partitions; advance the watermark despite them.
    forced                     boolean NOT NULL DEFAULT false,
    advance                    boolean NOT NULL DEFAULT false,
    error                      text,
    consolidation_started_at   timestamptz,
    consolidation_completed_at timestamptz,
    consolidation_processed    bigint NOT NULL DEFAULT 0,
    consolidation_errors       bigint NOT NULL DEFAULT 0,
    consolidation_total        bigint NOT NULL DEFAULT 0,
    deleted                    bigint NOT NULL DEFAULT 0,
    -- Why no records were deleted, if some would have been.
    delete_note                text,
    -- How it is shown that a full sync read every record. NULL: it is not, so no record counts as absent.
    absence_evidence           text COLLATE "C",
    -- The rows that were kept although their records were not listed.
    absent_kept                integer NOT NULL DEFAULT 0,
    -- The outcomes of the listed records by number. NULL until the sync is completed.
    ledger                     jsonb,
    updated_at                 timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT run_type_is_known CHECK (run_type = ANY ('{full,incremental}')),
    CONSTRAINT sync_state_is_known CHECK (state = ANY
        ('{created,workers_running,consolidation_triggered,consolidating,completed,failed}')),
    CONSTRAINT sync_completed_iff_at CHECK ((state = 'completed') = (completed_at IS NOT NULL))
) WITH (fillfactor = 50);
CREATE INDEX run_metadata_feed ON {sync}.run_metadata (feed, started_at);
CREATE UNIQUE INDEX run_metadata_attempt ON {sync}.run_metadata (ops_run_id);
CREATE INDEX run_metadata_live ON {sync}.run_metadata (started_at) WHERE state <> ALL ('{completed,failed}');

CREATE TABLE {sync}.worker_runs (
    id                uuid PRIMARY KEY,
    run_id            uuid NOT NULL REFERENCES {sync}.run_metadata (run_id),
    partition_id      text COLLATE "C" NOT NULL,
    worker_id         text NOT NULL,
    status            text COLLATE "C" NOT NULL,
    records_processed integer DEFAULT 0,
    error_message     text,
    work_item_payload jsonb,
    started_at        timestamptz DEFAULT now(),
    completed_at      timestamptz,
    UNIQUE (run_id, partition_id),
    CONSTRAINT worker_run_status_is_known CHECK (status = ANY ('{running,completed,failed}'))
) WITH (fillfactor = 50);

CREATE TABLE {sync}.partition_progress (
    run_id            uuid NOT NULL,
    partition_id      text COLLATE "C" NOT NULL,
    next_offset       integer NOT NULL DEFAULT 0,
    completed         boolean NOT NULL DEFAULT false,
    created_at        timestamptz DEFAULT now(),
    updated_at        timestamptz DEFAULT now(),
    failed            boolean NOT NULL DEFAULT false,
    state             text COLLATE "C" NOT NULL DEFAULT 'pending',
    range_from        bigint NOT NULL,
    range_to          bigint NOT NULL,
    predicted         bigint NOT NULL,
    -- By how many records the source's list has shrunk before the offset, and how often it is read from the start.
    shift             integer NOT NULL DEFAULT 0,
    pass              integer NOT NULL DEFAULT 1,
    -- The count of the source after the last page.
    recount           bigint,
    -- Whether each page of this pass is linked to the page before it.
    linked            boolean NOT NULL DEFAULT true,
    -- The count of the source before the first page of this pass, and the source's time of the count.
    counted           bigint,
    counted_at        timestamptz,
    -- How it is shown that the last pass read every record, or why it is not. NULL if nothing was decided.
    evidence          text COLLATE "C",
    fetched           bigint NOT NULL DEFAULT 0,
    stored            bigint NOT NULL DEFAULT 0,
    changed           bigint NOT NULL DEFAULT 0,
    rejected          bigint NOT NULL DEFAULT 0,
    -- The offset up to which pages are consolidated, the number of their records, and the number of rejected ones.
    consolidated_to   integer NOT NULL DEFAULT 0,
    consolidated      bigint NOT NULL DEFAULT 0,
    refused           bigint NOT NULL DEFAULT 0,
    -- The records on its pages, and the outcomes of the consolidated ones by number.
    listed            bigint NOT NULL DEFAULT 0,
    ledger            jsonb NOT NULL DEFAULT '{}',
    -- Consecutive failures of the current page, and the last error.
    faults            integer NOT NULL DEFAULT 0,
    error             text,
    -- Requested for a retry: read the partition again from its beginning.
    restart           boolean NOT NULL DEFAULT false,
    -- Read only records that were updated since. NULL: all records.
    updated_from      timestamptz,
    -- The gap that this partition covers.
    gap_id            bigint,
    first_page_at     timestamptz,
    ended_at          timestamptz,
    -- Token of the next page, for sources whose pages cannot be requested by offset.
    next_token        text,
    -- Largest number of the incremental cursor, for feeds whose cursor is a number.
    cursor_max        bigint,
    PRIMARY KEY (run_id, partition_id),
    CONSTRAINT partition_state_is_known
        CHECK (state = ANY ('{pending,in_progress,fetching_pages,completed,failed}')),
    CONSTRAINT partition_completed_iff CHECK (completed = (state = 'completed')),
    CONSTRAINT partition_failed_iff CHECK (failed = (state = 'failed')),
    CONSTRAINT partition_is_a_range CHECK (range_from < range_to)
) WITH (fillfactor = 40);

-- One row per stored page: its counts, the records that it contained, and the unit of consolidation.
CREATE TABLE {ops}.pages (
    run_id       uuid NOT NULL,
    partition_id text COLLATE "C" NOT NULL,
    page_offset  integer NOT NULL,
    pass         integer NOT NULL,
    fetched      integer NOT NULL,
    stored       integer NOT NULL,
    changed      integer NOT NULL,
    page_hash    bytea NOT NULL,
    -- Names of records are usually UUIDs, which take less than half the space as such. One of the two columns is set.
    record_ids   text[],
    record_uuids uuid[],
    stored_at    timestamptz NOT NULL,
    PRIMARY KEY (run_id, partition_id, page_offset),
    CONSTRAINT page_has_records CHECK ((record_ids IS NULL) <> (record_uuids IS NULL))
);

-- The last version of each record of the feed `nivoda`. Another feed gets a table of its own when it is added: see the
-- statement raw_create. Operators know this one by name, so it exists before its feed.
CREATE TABLE {sync}.raw_diamonds_nivoda (
    supplier_stone_id text COLLATE "C" PRIMARY KEY,
    offer_id          text,
    run_id            uuid NOT NULL,
    payload           jsonb NOT NULL,
    payload_hash      bytea NOT NULL,
    source_updated_at timestamptz,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL
);

-- The table that each feed with a definition writes. Two feeds write the same table only if their keys cannot meet.
CREATE TABLE {ops}.feed_tables (
    feed       text COLLATE "C" PRIMARY KEY REFERENCES {ops}.feeds ON DELETE CASCADE,
    -- The schema and the table, as public.orders.
    table_name text COLLATE "C" NOT NULL,
    -- The part of the key that only rows of this feed have, as {"appends": false, "constants": {"region": "eu"}}.
    claim      text NOT NULL
);
CREATE INDEX feed_tables_name ON {ops}.feed_tables (table_name);

-- Which version of a record is in the table of its feed, for feeds with a definition. The table belongs to the user, so
-- the columns of the consolidation cannot be there.
CREATE TABLE {ops}.feed_records (
    feed           text COLLATE "C" NOT NULL,
    record_id      text COLLATE "C" NOT NULL,
    -- The table and the primary key of the row, as {"public.orders": {"id": "5"}}. NULL if rows are only appended, or
    -- there was never one.
    row_key        text COLLATE "C",
    -- The payload and the mapper that the row was built from. The hash of an absent record is empty, so that its row is
    -- built again once the source lists it.
    built_hash     bytea NOT NULL,
    mapper_version integer NOT NULL,
    -- deleted: the record says so itself. absent: the source no longer has it.
    state          text COLLATE "C" NOT NULL,
    updated_at     timestamptz NOT NULL,
    PRIMARY KEY (feed, record_id),
    CONSTRAINT record_state_is_known CHECK (state = ANY ('{active,deleted,absent}'))
);
-- Finds other records with the same row, before the row is deleted.
CREATE INDEX feed_records_row ON {ops}.feed_records (feed, row_key);

CREATE TABLE {sync}.diamonds (
    feed                  text COLLATE "C" NOT NULL,
    supplier_stone_id     text COLLATE "C" NOT NULL,
    offer_id              text,
    status                text COLLATE "C" NOT NULL DEFAULT 'active',
    shape                 text NOT NULL,
    carats                numeric(8, 2) NOT NULL,
    color                 text,
    clarity               text,
    cut                   text,
    polish                text,
    symmetry              text,
    fluorescence          text,
    fancy_color           text,
    fancy_intensity       text,
    fancy_overtone        text,
    lab_grown             boolean NOT NULL,
    treated               boolean NOT NULL,
    ratio                 real,
    availability          text COLLATE "C" NOT NULL,
    raw_availability      text,
    hold_id               text,
    feed_price_cents      bigint NOT NULL,
    price_per_carat_cents bigint NOT NULL,
    retail_price_cents    bigint NOT NULL,
    markup_ratio          numeric(7, 4) NOT NULL,
    rating                integer,
    rule_id               bigint,
    image_url             text,
    video_url             text,
    certificate_lab       text,
    certificate_number    text,
    certificate_url       text,
    table_pct             real,
    depth_pct             real,
    length_mm             real,
    width_mm              real,
    depth_mm              real,
    girdle                text,
    culet_size            text,
    eye_clean             boolean,
    supplier_name         text,
    -- The payload, mapper and rules that the row was built from. The consolidator rebuilds a row when they differ.
    payload_hash          bytea NOT NULL,
    mapper_version        integer NOT NULL,
    rules_version         integer NOT NULL,
    created_at            timestamptz NOT NULL,
    updated_at            timestamptz NOT NULL,
    deleted_at            timestamptz,
    PRIMARY KEY (feed, supplier_stone_id),
    CONSTRAINT stone_status_is_known CHECK (status = ANY ('{active,deleted}')),
    CONSTRAINT stone_deleted_iff_at CHECK ((status = 'deleted') = (deleted_at IS NOT NULL))
);

CREATE TABLE {sync}.pricing_rules (
    id           bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    priority     integer NOT NULL DEFAULT 100,
    feed         text COLLATE "C",
    stone_type   text COLLATE "C",
    lab_grown    boolean,
    shapes       text[] NOT NULL DEFAULT '{}',
    carat_min    numeric(8, 2),
    carat_max    numeric(8, 2),
    price_min    numeric(12, 2),
    price_max    numeric(12, 2),
    markup_ratio numeric(7, 4) NOT NULL,
    rating       integer,
    active       boolean NOT NULL DEFAULT true,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT rule_stone_type_is_known CHECK (stone_type = ANY ('{natural,lab,fancy}')),
    CONSTRAINT rule_carats_are_a_range CHECK (carat_min <= carat_max),
    CONSTRAINT rule_prices_are_a_range CHECK (price_min <= price_max),
    CONSTRAINT rule_rating_is_known CHECK (rating BETWEEN 1 AND 10),
    CONSTRAINT rule_markup_is_positive CHECK (markup_ratio > 0)
);
-- The default rule.
INSERT INTO {sync}.pricing_rules (priority, markup_ratio, rating) VALUES (1000, 1.15, 5);

-- Snapshots of the rules: a sync uses one snapshot, so that a change of the rules cannot mix prices.
CREATE TABLE {ops}.rule_sets (
    version    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest     text COLLATE "C" NOT NULL UNIQUE,
    rules      jsonb NOT NULL,
    created_at timestamptz NOT NULL
);

-- Records that could not be stored or mapped, with the reason. Removed once the record is in the canonical table.
CREATE TABLE {ops}.rejected_rows (
    feed         text COLLATE "C" NOT NULL,
    record_id    text COLLATE "C" NOT NULL,
    run_id       uuid NOT NULL,
    partition_id text COLLATE "C",
    stage        text COLLATE "C" NOT NULL,
    reason       text NOT NULL,
    payload      text NOT NULL,
    times        integer NOT NULL DEFAULT 1,
    first_at     timestamptz NOT NULL,
    last_at      timestamptz NOT NULL,
    -- Whether a unique key of the table refused the row: it is written again after the deletes of the sync.
    is_unique_violation boolean NOT NULL DEFAULT false,
    PRIMARY KEY (feed, record_id),
    CONSTRAINT reject_stage_is_known CHECK (stage = ANY ('{fetch,store,map,upsert,delete}'))
);

-- Ranges of the partition field that the watermark passed without their records.
CREATE TABLE {ops}.feed_gaps (
    gap_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    feed         text COLLATE "C" NOT NULL,
    range_from   bigint NOT NULL,
    range_to     bigint NOT NULL,
    updated_from timestamptz,
    updated_to   timestamptz NOT NULL,
    -- The sync that left the gap, and the one that closed it.
    left_by      uuid NOT NULL,
    reason       text NOT NULL,
    created_at   timestamptz NOT NULL,
    closed_by    uuid,
    closed_at    timestamptz
);
CREATE INDEX feed_gaps_open ON {ops}.feed_gaps (feed) WHERE closed_at IS NULL;

-- Every change of a feed's watermark, by syncs and by operators.
CREATE TABLE {ops}.watermark_changes (
    feed       text COLLATE "C" NOT NULL,
    changed_at timestamptz NOT NULL,
    before_at  timestamptz,
    after_at   timestamptz,
    run_id     uuid,
    by_whom    text NOT NULL,
    note       text,
    PRIMARY KEY (feed, changed_at)
);

------------------------------------------------------------------------------
-- Alerts and webhooks
------------------------------------------------------------------------------

-- Alerts. Each is written in the transaction that it reports on. created_at is when it began, sent_at when it was
-- handed to the deliveries (NULL: not yet). Alerts with the same kind and subject count on one row until it is
-- resolved; an empty subject stands for itself.
CREATE TABLE {ops}.alerts (
    alert_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind        text COLLATE "C" NOT NULL,
    feed        text COLLATE "C",
    run_id      text COLLATE "C",
    message     text NOT NULL,
    created_at  timestamptz NOT NULL,
    sent_at     timestamptz,
    subject     text COLLATE "C" NOT NULL DEFAULT '',
    project_id  text COLLATE "C",
    last_at     timestamptz,
    times       integer NOT NULL DEFAULT 1,
    resolved_at timestamptz
);
CREATE INDEX alerts_unsent ON {ops}.alerts (alert_id) WHERE sent_at IS NULL;
CREATE UNIQUE INDEX alerts_open ON {ops}.alerts (kind, subject) WHERE resolved_at IS NULL AND subject <> '';
CREATE INDEX alerts_project ON {ops}.alerts (project_id, alert_id);

-- Runs whose end may raise or resolve an alert. Written in the transaction that ends the run.
CREATE TABLE {ops}.run_notices (
    run_id text COLLATE "C" PRIMARY KEY
);

CREATE TABLE {ops}.deliveries (
    -- The same for every attempt, so that a receiver can ignore repeated ones.
    delivery_id text COLLATE "C" PRIMARY KEY,
    target      text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    grp         text COLLATE "C" NOT NULL,
    alert_id    bigint NOT NULL,
    -- The alert as it is sent: the same in every attempt.
    alert       jsonb NOT NULL,
    -- The number of further alerts of the group that this delivery covers.
    held        integer NOT NULL DEFAULT 0,
    attempt     integer NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL,
    -- When the next attempt may start: when due, after a back-off, or when the current attempt has timed out.
    next_at     timestamptz NOT NULL,
    sent_at     timestamptz,
    dead_at     timestamptz,
    error       text,
    created_at  timestamptz NOT NULL,
    CONSTRAINT delivery_is_sent_or_dead CHECK (sent_at IS NULL OR dead_at IS NULL)
);
CREATE UNIQUE INDEX deliveries_waiting ON {ops}.deliveries (target, kind, grp)
    WHERE attempt = 0 AND sent_at IS NULL AND dead_at IS NULL;
CREATE INDEX deliveries_due ON {ops}.deliveries (next_at) WHERE sent_at IS NULL AND dead_at IS NULL;
CREATE INDEX deliveries_of_group ON {ops}.deliveries (target, kind, grp, due_at);

CREATE TABLE {ops}.hooks (
    hook       text COLLATE "C" PRIMARY KEY,
    project_id text COLLATE "C" NOT NULL REFERENCES {ops}.projects,
    kind       text COLLATE "C" NOT NULL,
    -- The name of an environment variable. No secret is stored.
    secret_env text NOT NULL,
    rules      jsonb NOT NULL,
    -- The author of the definition. The operator's lists apply to definitions of projects.
    defined_by text COLLATE "C" NOT NULL,
    paused_at  timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT hook_author_is_known CHECK (defined_by = ANY ('{operator,project}')),
    CONSTRAINT hook_is_a_name CHECK (hook ~ '^[a-z0-9][a-z0-9-]*$'),
    CONSTRAINT hook_kind_is_known CHECK (kind = ANY ('{github,generic}'))
);

-- Signed bodies that queued a run. A body is executed once, because the ids of deliveries are not signed.
CREATE TABLE {ops}.hook_deliveries (
    hook        text COLLATE "C" NOT NULL,
    -- SHA-256 of the body.
    body_hash   text COLLATE "C" NOT NULL,
    run_id      text COLLATE "C" NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (hook, body_hash)
);
CREATE INDEX hook_deliveries_old ON {ops}.hook_deliveries (received_at);

------------------------------------------------------------------------------
-- Access: tokens, browser sessions, audit log. Tokens and cookies are stored as SHA-256 only
------------------------------------------------------------------------------

CREATE TABLE {ops}.tokens (
    token_id     uuid PRIMARY KEY,
    name         text NOT NULL,
    hash         text COLLATE "C" NOT NULL UNIQUE,
    role         text COLLATE "C" NOT NULL,
    -- NULL: all projects. Sorted, so that equal sets are equal lists.
    projects     text[] COLLATE "C",
    created_at   timestamptz NOT NULL,
    created_by   text NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    revoked_by   text,
    -- Written at most once a minute.
    last_used_at timestamptz,
    CONSTRAINT token_role_is_known CHECK (role IN ('viewer', 'operator', 'worker', 'agent', 'admin')),
    CONSTRAINT token_projects_are_not_empty CHECK (cardinality(projects) > 0),
    CONSTRAINT token_hash_is_a_hash CHECK (hash ~ '^[0-9a-f]{64}$')
);

CREATE TABLE {ops}.sessions (
    hash         text COLLATE "C" PRIMARY KEY,
    -- A session is valid as long as its token.
    token_id     uuid NOT NULL REFERENCES {ops}.tokens ON DELETE CASCADE,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    last_used_at timestamptz,
    CONSTRAINT session_hash_is_a_hash CHECK (hash ~ '^[0-9a-f]{64}$')
);
CREATE INDEX sessions_of_token ON {ops}.sessions (token_id);
CREATE INDEX sessions_by_end ON {ops}.sessions (expires_at);

-- Without foreign keys: entries stay when their project or token is removed.
CREATE TABLE {ops}.audit (
    audit_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    -- One entry per call, also if its transaction is retried after a lost response.
    call_id    uuid NOT NULL UNIQUE,
    who        text NOT NULL,
    token_id   uuid,
    role       text COLLATE "C" NOT NULL,
    action     text COLLATE "C" NOT NULL,
    subject    text COLLATE "C",
    project_id text COLLATE "C",
    outcome    text COLLATE "C" NOT NULL DEFAULT 'applied',
    detail     jsonb NOT NULL DEFAULT '{}',
    source     text,
    -- NULL until the entry is sealed.
    seal_no    bigint,
    CONSTRAINT audit_role_is_known
        CHECK (role IN ('viewer', 'operator', 'worker', 'agent', 'admin', 'hook', 'schedule')),
    CONSTRAINT audit_outcome_is_known CHECK (outcome IN ('applied', 'refused'))
);
CREATE INDEX audit_of_project ON {ops}.audit (project_id, audit_id);
CREATE INDEX audit_unsealed ON {ops}.audit (audit_id) WHERE seal_no IS NULL;
CREATE INDEX audit_of_seal ON {ops}.audit (seal_no, audit_id) WHERE seal_no IS NOT NULL;

-- The hash chain of the audit log. Each seal covers the seal before it and a batch of entries.
CREATE TABLE {ops}.audit_seals (
    seal_no   bigint PRIMARY KEY,
    sealed_at timestamptz NOT NULL,
    previous  text COLLATE "C" NOT NULL,
    -- Ids and hashes of the entries.
    entries   jsonb NOT NULL,
    hash      text COLLATE "C" NOT NULL,
    -- Time of the newest entry, for retention.
    newest_at timestamptz NOT NULL,
    -- Set when retention removes the entries. The last such seal is the anchor of the chain.
    pruned_at timestamptz,
    CONSTRAINT seal_hashes_are_hashes CHECK (previous ~ '^[0-9a-f]{64}$' AND hash ~ '^[0-9a-f]{64}$')
);

------------------------------------------------------------------------------
-- Graphs: jobs and tasks, agents, pools. Only the holder of the controller lease changes the code of a job; others
-- write columns of their own, and name the job in job_changes in the same transaction
------------------------------------------------------------------------------

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
    -- created_at of the run.
    created_at    timestamptz NOT NULL
);
CREATE INDEX graphs_of_name ON {ops}.graphs (name COLLATE "C", created_at, run_id) WHERE name IS NOT NULL;

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
    -- Columns of the spec that the controller reads often.
    labels       text[] NOT NULL,
    weight       integer NOT NULL,
    pool         text COLLATE "C",
    retries      integer NOT NULL,
    -- Seconds of silence of the agent after which the job is lost. NULL: the job waits for its agent.
    lost_secs    integer,
    -- Only the controller writes these columns.
    code         text COLLATE "C" NOT NULL DEFAULT 'created',
    message      text,
    errors       integer NOT NULL DEFAULT 0,
    failures     integer NOT NULL DEFAULT 0,
    not_before   timestamptz,
    task_number  integer NOT NULL DEFAULT 0,
    task_id      text COLLATE "C",
    agent_id     uuid,
    exit_code    integer,
    -- Whether the cancel of its last task is not confirmed yet: until then the job uses capacity.
    stopping     boolean NOT NULL DEFAULT false,
    version      bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    started_at   timestamptz,
    ended_at     timestamptz,
    updated_at   timestamptz NOT NULL,
    -- Users write these columns.
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
-- The controller reads all live jobs: this index contains no ended ones.
CREATE INDEX jobs_live ON {ops}.jobs (job_id) WHERE ended_at IS NULL OR stopping;
CREATE INDEX jobs_live_of_run ON {ops}.jobs (run_id) WHERE ended_at IS NULL OR stopping;
CREATE INDEX jobs_latest ON {ops}.jobs (project_id, workspace, name, created_at, run_id);
CREATE INDEX jobs_changed ON {ops}.jobs (run_id, version);

CREATE TABLE {ops}.job_needs (
    job_id text COLLATE "C" NOT NULL,
    needs  text COLLATE "C" NOT NULL,
    PRIMARY KEY (job_id, needs)
);

-- Jobs that the controller has to read, or whole runs that are new or cancelled. The version shows whether there was
-- another change while it read.
CREATE TABLE {ops}.job_changes (
    subject text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 50);

-- Every change of a job's code. A trigger writes the rows.
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
    -- Only the controller writes these columns.
    active     boolean NOT NULL DEFAULT true,
    end_cause  text COLLATE "C",
    created_at timestamptz NOT NULL,
    ended_at   timestamptz,
    -- Only the agent writes these columns.
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
    -- The job and the agent that created the file. They differ from job_id if the result was reused.
    made_by    text COLLATE "C" NOT NULL,
    agent_id   uuid,
    PRIMARY KEY (job_id, task_id, name, path)
);
-- The outputs that an agent made and still has.
CREATE INDEX job_outputs_of_agent ON {ops}.job_outputs (agent_id, made_by) WHERE agent_id IS NOT NULL;

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
    -- The projects of its token. NULL: all projects.
    projects      text[] COLLATE "C",
    -- The token with which the agent registered: no other token may speak for it, and a token of role agent speaks for
    -- no other agent.
    token_id      uuid,
    -- The hash of the current process's id: an earlier process is refused.
    boot_id       uuid NOT NULL,
    draining      boolean NOT NULL DEFAULT false,
    registered_at timestamptz NOT NULL,
    seen_at       timestamptz NOT NULL,
    left_at       timestamptz,
    forgotten_at  timestamptz,
    -- SHA-256 of the secret in the agent's directory. Each registration proves and replaces it.
    secret_hash   text COLLATE "C" NOT NULL,
    -- The lock of the agent's directory on its machine: a copy of the directory has another one.
    dir_lock      text COLLATE "C",
    -- The mechanisms that isolate the tasks of the agent, each with `yes` or a reason; NULL if it does not report them.
    isolation     jsonb,
    CONSTRAINT agent_capacity_is_positive CHECK (capacity > 0)
) WITH (fillfactor = 50);

CREATE TABLE {ops}.pools (
    name text COLLATE "C" PRIMARY KEY,
    size integer NOT NULL,
    CONSTRAINT pool_size_is_not_negative CHECK (size >= 0)
);
INSERT INTO {ops}.pools (name, size) VALUES ('database', 4);

-- The lease of the controller. A takeover raises the epoch, which fences off the previous holder. version is the last
-- version of a job: only the holder raises it, so that it has no gaps.
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
