-- All tables.
--
-- Differs: times are microseconds, JSON and lists are JSON texts, booleans are 0 or 1, UUIDs are text, digests are
-- blobs, and decimals are REAL (see codec.rs). STRICT and the checks without a name stand for types that SQLite lacks.
-- Default times have milliseconds, because the clock of SQLite has no more. One file has one schema.
-- SQLite 3.38 and newer can read this schema and the triggers in sql/kernel: newer syntax would lock an operator's own
-- sqlite3 out of the whole file.

------------------------------------------------------------------------------
-- Runs: projects, runs and their events, workers, flags, schedules
------------------------------------------------------------------------------

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

-- The runs of one project that require the same labels. A claim compares the first run of each label set that fits, so
-- that runs for other workers cost it nothing (ADR 4).
-- Differs: no scan_* columns. They skip row versions that a long transaction keeps alive, which SQLite does not have.
CREATE TABLE label_sets (
    label_set_id INTEGER PRIMARY KEY,
    project_id   TEXT NOT NULL,
    labels       TEXT NOT NULL CHECK (json_valid(labels)),
    UNIQUE (project_id, labels)
) STRICT;

-- Differs: two checks hold only in one direction, because a row trigger of SQLite cannot change the row before the
-- checks. A plain `UPDATE runs SET status = 'cancelled'` leaves the gate and no end, until the trigger run_c_by_hand
-- completes it. The triggers run_c_by_hand, run_c_gate and run_by_hand_whole enforce the other direction.
CREATE TABLE runs (
    run_id              TEXT NOT NULL PRIMARY KEY,
    project_id          TEXT NOT NULL,
    env_id              TEXT NOT NULL,
    lane                TEXT NOT NULL DEFAULT 'ops',
    -- The kind of work, by which a worker chooses the handler. Empty: none.
    kind                TEXT NOT NULL DEFAULT '',
    status              TEXT NOT NULL DEFAULT 'queued',
    gate                TEXT DEFAULT 'open',
    git_sha             TEXT,
    git_ref             TEXT,
    metadata            TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),
    -- The metadata of the request, once a report has changed it: the metadata of a successor.
    input               TEXT CHECK (input IS NULL OR json_valid(input)),
    idempotency_key     TEXT,
    -- The whole request if it has an idempotency key, to compare repeated requests with.
    request             TEXT CHECK (request IS NULL OR json_valid(request)),
    priority            INTEGER NOT NULL DEFAULT 0,
    -- Differs: a plain INSERT leaves 0, which is no label set; the trigger run_by_hand sets it.
    label_set_id        INTEGER NOT NULL DEFAULT 0,
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
    -- When the sweeper has to examine the run. Generated, so that a plain SQL statement cannot omit it. Differs: min()
    -- of SQLite is NULL if an argument is, so the largest integer stands for never.
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
    -- When a running run went silent whose worker has promised no heartbeats. The run stays with its worker (ADR 24).
    stalled_at          INTEGER,
    CONSTRAINT run_id_is_a_run_id CHECK (run_id GLOB 'run-*'),
    CONSTRAINT run_lane_is_known CHECK (lane IN ('ops', 'graph', 'sync')),
    -- Differs: on PostgreSQL, where a check would cost more than the rest of a step, check_readable refuses them.
    CONSTRAINT run_texts_are_one_line
        CHECK (coalesce(git_sha, '') || coalesce(git_ref, '') || coalesce(idempotency_key, '')
               || coalesce(concurrency_key, '') || coalesce(claimed_by, '') || coalesce(cancel_requested_by, '') || kind
               NOT GLOB {control}),
    CONSTRAINT run_status_is_known
        CHECK (status IN ('queued', 'claimed', 'running', 'success', 'failed', 'cancelled')),
    CONSTRAINT run_gate_is_known CHECK (gate IN ('open', 'time', 'key')),
    CONSTRAINT run_has_a_gate_while_queued CHECK (status <> 'queued' OR gate IS NOT NULL),
    CONSTRAINT run_has_a_claimer_while_held CHECK (status NOT IN ('claimed', 'running') OR claimed_by IS NOT NULL),
    CONSTRAINT run_finished_iff_final CHECK (status IN ({run_terminal}) OR finished_at IS NULL)
) STRICT;

CREATE INDEX runs_ready ON runs (label_set_id, priority DESC, ready_at, run_id) WHERE gate = 'open';
CREATE INDEX runs_waiting_for_key ON runs (project_id, concurrency_key, priority DESC, ready_at, run_id)
    WHERE gate = 'key';
CREATE INDEX runs_delayed ON runs (available_at) WHERE gate = 'time';
CREATE INDEX runs_attention ON runs (attention_at) WHERE attention_at IS NOT NULL;
CREATE INDEX runs_held ON runs (claimed_by, claim_request) WHERE status IN ('claimed', 'running');
CREATE UNIQUE INDEX runs_idempotency ON runs (project_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- Differs: on PostgreSQL, runs of an environment are found by their first event, which costs a claim and a finish
-- nothing.
CREATE INDEX runs_of_env ON runs (env_id, created_at, run_id);
-- The order of lists, and the time of their filters. Not the id: a caller may choose it (ADR 37).
CREATE INDEX runs_by_age ON runs (created_at, run_id);
-- Ended runs, for retention.
CREATE INDEX runs_ended ON runs (finished_at) WHERE finished_at IS NOT NULL;

-- Removed runs of which events, jobs or log pieces are left, which retention removes step by step. Their ids are taken
-- until then.
CREATE TABLE removed_runs (
    -- events or jobs.
    part   TEXT NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (part, run_id)
) STRICT, WITHOUT ROWID;

-- Differs: one writer at a time, so the row number says in which order events were committed. It is never reused.
CREATE TABLE run_events (
    xact       INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id     TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    event_id   TEXT NOT NULL GENERATED ALWAYS AS ('evt-' || substr(run_id, 5) || '-' || seq) VIRTUAL,
    kind       TEXT NOT NULL DEFAULT 'log',
    level      TEXT NOT NULL,
    message    TEXT NOT NULL,
    payload    TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(payload)),
    event_key  TEXT,
    -- Identifies repeated appends: the key, or a digest of level, message and payload.
    same_as    TEXT,
    -- Differs: SQLite has no users.
    actor      TEXT NOT NULL DEFAULT 'local',
    created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    UNIQUE (run_id, seq),
    CONSTRAINT event_kind_is_known CHECK (kind IN ('log', 'transition', 'refusal', 'request')),
    CONSTRAINT event_level_is_known CHECK (level IN ('debug', 'info', 'warn', 'error'))
) STRICT;
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

-- The head of a key is its only run that may be claimed, is claimed or is running. The other runs wait in line.
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
    -- Whether the process listens for a wake-up.
    waiting    INTEGER NOT NULL DEFAULT 0 CHECK (waiting IN (0, 1)),
    ended_at   INTEGER,
    end_cause  TEXT,
    -- Whether an operator asked it to drain: it finishes its runs and gets no new ones.
    draining   INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    CONSTRAINT worker_end_is_known CHECK (end_cause IN ('stopped', 'dead'))
) STRICT;

CREATE TABLE flags (
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

-- One row per schedule and fire time, for every decision: the primary key ensures that a schedule fires once.
CREATE TABLE schedule_fires (
    schedule_id TEXT NOT NULL,
    fire_at     INTEGER NOT NULL,
    decision    TEXT NOT NULL,
    run_id      TEXT,
    decided_at  INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, fire_at),
    CONSTRAINT fire_decision_is_known CHECK (decision IN ('queued', 'missed', 'overlapped'))
) STRICT;

-- Failed and cancelled runs, for lists. Triggers maintain it.
CREATE TABLE unsuccessful_runs (
    status     TEXT NOT NULL,
    -- created_at of the run.
    created_at INTEGER NOT NULL,
    run_id     TEXT NOT NULL,
    PRIMARY KEY (status, created_at, run_id)
) STRICT, WITHOUT ROWID;

-- Commit, branch, kind, lane and feed of runs, for lists, and successors. One table for all of them, as on PostgreSQL,
-- where an index for each would cost every step of every run (ADR 22).
CREATE TABLE run_lookup (
    -- lane, feed, kind, sha, ref or retry_of.
    kind       TEXT NOT NULL,
    value      TEXT NOT NULL,
    -- created_at of the run.
    created_at INTEGER NOT NULL,
    run_id     TEXT NOT NULL,
    PRIMARY KEY (kind, value, created_at, run_id)
) STRICT, WITHOUT ROWID;
-- A run has one successor.
CREATE UNIQUE INDEX run_lookup_successor ON run_lookup (value) WHERE kind = 'retry_of';

-- Answers to requests with an idempotency key: a repeated request gets the same answer. Kept for a day.
CREATE TABLE request_keys (
    -- The caller: keys of different callers are independent.
    scope      TEXT NOT NULL,
    route      TEXT NOT NULL,
    key        TEXT NOT NULL,
    -- SHA-256 of the request, to detect another request with the same key.
    body_hash  TEXT NOT NULL,
    answer     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, route, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_keys_old ON request_keys (created_at);

------------------------------------------------------------------------------
-- Queues: leased messages
------------------------------------------------------------------------------

CREATE TABLE queues (
    queue          TEXT NOT NULL PRIMARY KEY,
    lock_secs      INTEGER NOT NULL,
    deliveries_max INTEGER NOT NULL,
    -- Seconds for which a completed message is remembered (deduplication window). NULL: not at all.
    window_secs    INTEGER,
    expiry_secs    INTEGER NOT NULL,
    CONSTRAINT queue_name_is_a_name CHECK (queue GLOB '[a-z0-9]*' AND queue NOT GLOB '*[^a-z0-9-]*'),
    CONSTRAINT queue_lock_is_positive CHECK (lock_secs > 0),
    CONSTRAINT queue_delivers_at_least_once CHECK (deliveries_max > 0),
    CONSTRAINT queue_window_is_positive CHECK (window_secs > 0),
    CONSTRAINT queue_expiry_is_positive CHECK (expiry_secs > 0)
) STRICT;

INSERT INTO queues (queue, lock_secs, deliveries_max, window_secs, expiry_secs) VALUES
    ('work-items', 120, 5, 600, 86400),
    ('work-done', 60, 3, NULL, 86400),
    ('consolidate', 300, 3, NULL, 86400);

CREATE TABLE messages (
    queue       TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    generation  INTEGER NOT NULL,
    -- The group, such as a feed. Groups take turns.
    grp         TEXT NOT NULL,
    state       TEXT NOT NULL DEFAULT 'live',
    -- NULL once the message is completed.
    body        TEXT CHECK (body IS NULL OR json_valid(body)),
    run_id      TEXT,
    trace_id    TEXT,
    enqueued_at INTEGER NOT NULL,
    -- The position in the queue: when the message was sent or returned, plus its delay. A lock does not change it.
    ready_at    INTEGER NOT NULL,
    -- When the message may be received: after its delay, or when its lock expires.
    visible_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    -- The worker process that holds the message, or held it when it was completed.
    locked_by   TEXT,
    epoch       INTEGER NOT NULL DEFAULT 0,
    deliveries  INTEGER NOT NULL DEFAULT 0,
    -- When the message was completed, or became a dead letter.
    ended_at    INTEGER,
    dead_reason TEXT,
    last_error  TEXT,
    PRIMARY KEY (queue, message_id, generation)
) STRICT;

-- The only index of the hot path: waiting and locked messages, by group. Receiving and renewing change no indexed
-- column.
CREATE INDEX messages_ready ON messages (queue, grp, ready_at) WHERE state = 'live';
CREATE INDEX messages_dead ON messages (queue, ended_at, message_id, generation) WHERE state = 'dead';

------------------------------------------------------------------------------
-- Syncs: feeds, partitions, pages, records, prices. Operators know six of these tables by name: they are in {sync}
------------------------------------------------------------------------------

CREATE TABLE feeds (
    feed                  TEXT NOT NULL PRIMARY KEY,
    project_id            TEXT NOT NULL REFERENCES projects,
    kind                  TEXT NOT NULL,
    endpoint              TEXT NOT NULL,
    username              TEXT,
    -- The name of an environment variable. No password is stored.
    password_env          TEXT,
    rate                  INTEGER NOT NULL,
    settings              TEXT NOT NULL DEFAULT '{}',
    -- The watermark: up to which time of the source the feed is consolidated.
    last_updated_at       INTEGER,
    last_run_id           TEXT,
    last_run_completed_at INTEGER,
    -- The destination of the copy of the watermark, the last copied one, and the last error.
    copy_url              TEXT,
    copied_updated_at     INTEGER,
    copied_at             INTEGER,
    copy_error            TEXT,
    -- The circuit breaker. circuit_rev is for compare-and-swap.
    circuit               TEXT NOT NULL DEFAULT '{"state": "closed", "outages": 0}',
    circuit_rev           INTEGER NOT NULL DEFAULT 0,
    circuit_reason        TEXT,
    -- The author of the definition. The operator's lists apply to definitions of projects.
    defined_by            TEXT NOT NULL,
    -- The reason for which a process with a narrower configuration refused to reach the feed.
    refusal               TEXT,
    created_at            INTEGER NOT NULL,
    CONSTRAINT feed_author_is_known CHECK (defined_by IN ('operator', 'project')),
    CONSTRAINT feed_is_a_name CHECK (feed GLOB '[a-z0-9]*' AND feed NOT GLOB '*[^a-z0-9-]*'),
    CONSTRAINT feed_rate_is_not_negative CHECK (rate >= 0)
) STRICT;

CREATE TABLE run_metadata (
    run_id                     TEXT NOT NULL PRIMARY KEY,
    run_type                   TEXT NOT NULL,
    expected_workers           INTEGER NOT NULL,
    completed_workers          INTEGER DEFAULT 0,
    failed_workers             INTEGER DEFAULT 0,
    watermark_before           INTEGER,
    watermark_after            INTEGER,
    started_at                 INTEGER
        DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    completed_at               INTEGER,
    feed                       TEXT NOT NULL,
    trace_id                   TEXT NOT NULL,
    -- The current run of the sync: the first has the same id, its successors have their own.
    ops_run_id                 TEXT NOT NULL,
    state                      TEXT NOT NULL,
    updated_from               INTEGER,
    updated_to                 INTEGER NOT NULL,
    page_size                  INTEGER NOT NULL,
    granularity                INTEGER NOT NULL,
    predicted                  INTEGER NOT NULL DEFAULT 0,
    count_calls                INTEGER NOT NULL DEFAULT 0,
    scan_ms                    INTEGER NOT NULL DEFAULT 0,
    -- The counts of the scan by range of the partition field, for display.
    heatmap                    TEXT NOT NULL DEFAULT '[]',
    -- Raised whenever messages are sent again, so that old ones are recognised.
    generation                 INTEGER NOT NULL DEFAULT 0,
    rules_version              INTEGER,
    -- Digest of the feed definition with which the sync reads. NULL for feeds without one.
    definition                 TEXT,
    -- Consolidate despite failed partitions; advance the watermark despite them.
    forced                     INTEGER NOT NULL DEFAULT 0,
    advance                    INTEGER NOT NULL DEFAULT 0,
    error                      TEXT,
    consolidation_started_at   INTEGER,
    consolidation_completed_at INTEGER,
    consolidation_processed    INTEGER NOT NULL DEFAULT 0,
    consolidation_errors       INTEGER NOT NULL DEFAULT 0,
    consolidation_total        INTEGER NOT NULL DEFAULT 0,
    deleted                    INTEGER NOT NULL DEFAULT 0,
    -- Why no records were deleted, if some would have been.
    delete_note                TEXT,
    -- How it is shown that a full sync read every record. NULL: it is not, so no record counts as absent.
    absence_evidence           TEXT,
    -- The rows that were kept although their records were not listed.
    absent_kept                INTEGER NOT NULL DEFAULT 0,
    -- The outcomes of the listed records by number. NULL until the sync is completed.
    ledger                     TEXT,
    updated_at                 INTEGER NOT NULL
        DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    CONSTRAINT run_type_is_known CHECK (run_type IN ('full', 'incremental')),
    CONSTRAINT sync_state_is_known
        CHECK (state IN ('created', 'workers_running', 'consolidation_triggered', 'consolidating', 'completed',
            'failed')),
    CONSTRAINT sync_completed_iff_at CHECK ((state = 'completed') = (completed_at IS NOT NULL))
) STRICT;
CREATE INDEX run_metadata_feed ON run_metadata (feed, started_at);
CREATE UNIQUE INDEX run_metadata_attempt ON run_metadata (ops_run_id);
CREATE INDEX run_metadata_live ON run_metadata (started_at) WHERE state NOT IN ('completed', 'failed');

CREATE TABLE worker_runs (
    id                TEXT NOT NULL PRIMARY KEY,
    run_id            TEXT NOT NULL REFERENCES run_metadata (run_id),
    partition_id      TEXT NOT NULL,
    worker_id         TEXT NOT NULL,
    status            TEXT NOT NULL,
    records_processed INTEGER DEFAULT 0,
    error_message     TEXT,
    work_item_payload TEXT,
    started_at        INTEGER DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    completed_at      INTEGER,
    UNIQUE (run_id, partition_id),
    CONSTRAINT worker_run_status_is_known CHECK (status IN ('running', 'completed', 'failed'))
) STRICT;

CREATE TABLE partition_progress (
    run_id            TEXT NOT NULL,
    partition_id      TEXT NOT NULL,
    next_offset       INTEGER NOT NULL DEFAULT 0,
    completed         INTEGER NOT NULL DEFAULT 0,
    created_at        INTEGER DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    updated_at        INTEGER DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    failed            INTEGER NOT NULL DEFAULT 0,
    state             TEXT NOT NULL DEFAULT 'pending',
    range_from        INTEGER NOT NULL,
    range_to          INTEGER NOT NULL,
    predicted         INTEGER NOT NULL,
    -- By how many records the source's list has shrunk before the offset, and how often it is read from the start.
    shift             INTEGER NOT NULL DEFAULT 0,
    pass              INTEGER NOT NULL DEFAULT 1,
    -- The count of the source after the last page.
    recount           INTEGER,
    -- Whether each page of this pass is linked to the page before it.
    linked            INTEGER NOT NULL DEFAULT 1,
    -- The count of the source before the first page of this pass, and the source's time of the count.
    counted           INTEGER,
    counted_at        INTEGER,
    -- How it is shown that the last pass read every record, or why it is not. NULL if nothing was decided.
    evidence          TEXT,
    fetched           INTEGER NOT NULL DEFAULT 0,
    stored            INTEGER NOT NULL DEFAULT 0,
    changed           INTEGER NOT NULL DEFAULT 0,
    rejected          INTEGER NOT NULL DEFAULT 0,
    -- The offset up to which pages are consolidated, the number of their records, and the number of rejected ones.
    consolidated_to   INTEGER NOT NULL DEFAULT 0,
    consolidated      INTEGER NOT NULL DEFAULT 0,
    refused           INTEGER NOT NULL DEFAULT 0,
    -- The records on its pages, and the outcomes of the consolidated ones by number.
    listed            INTEGER NOT NULL DEFAULT 0,
    ledger            TEXT NOT NULL DEFAULT '{}',
    -- Consecutive failures of the current page, and the last error.
    faults            INTEGER NOT NULL DEFAULT 0,
    error             TEXT,
    -- Requested for a retry: read the partition again from its beginning.
    restart           INTEGER NOT NULL DEFAULT 0,
    -- Read only records that were updated since. NULL: all records.
    updated_from      INTEGER,
    -- The gap that this partition covers.
    gap_id            INTEGER,
    first_page_at     INTEGER,
    ended_at          INTEGER,
    -- Token of the next page, for sources whose pages cannot be requested by offset.
    next_token        TEXT,
    -- Largest number of the incremental cursor, for feeds whose cursor is a number.
    cursor_max        INTEGER,
    PRIMARY KEY (run_id, partition_id),
    CONSTRAINT partition_state_is_known
        CHECK (state IN ('pending', 'in_progress', 'fetching_pages', 'completed', 'failed')),
    CONSTRAINT partition_completed_iff CHECK (completed = (state = 'completed')),
    CONSTRAINT partition_failed_iff CHECK (failed = (state = 'failed')),
    CONSTRAINT partition_is_a_range CHECK (range_from < range_to)
) STRICT;

-- One row per stored page: its counts, the records that it contained, and the unit of consolidation.
CREATE TABLE pages (
    run_id       TEXT NOT NULL,
    partition_id TEXT NOT NULL,
    page_offset  INTEGER NOT NULL,
    pass         INTEGER NOT NULL,
    fetched      INTEGER NOT NULL,
    stored       INTEGER NOT NULL,
    changed      INTEGER NOT NULL,
    page_hash    BLOB NOT NULL,
    record_ids   TEXT NOT NULL,
    stored_at    INTEGER NOT NULL,
    PRIMARY KEY (run_id, partition_id, page_offset)
) STRICT;

-- The last version of each record of the feed `nivoda`. Another feed gets a table of its own when it is added: see the
-- statement raw_create. Operators know this one by name, so it exists before its feed.
CREATE TABLE raw_diamonds_nivoda (
    supplier_stone_id TEXT NOT NULL PRIMARY KEY,
    offer_id          TEXT,
    run_id            TEXT NOT NULL,
    payload           TEXT NOT NULL,
    payload_hash      BLOB NOT NULL,
    source_updated_at INTEGER,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL
) STRICT;

-- The table that each feed with a definition writes. Two feeds write the same table only if their keys cannot meet.
CREATE TABLE feed_tables (
    feed       TEXT NOT NULL PRIMARY KEY REFERENCES feeds ON DELETE CASCADE,
    -- The table in lower case, because SQLite ignores the case of names.
    table_name TEXT NOT NULL,
    -- The part of the key that only rows of this feed have, as {"appends": false, "constants": {"region": "eu"}}.
    claim      TEXT NOT NULL
) STRICT;
CREATE INDEX feed_tables_name ON feed_tables (table_name);

-- Which version of a record is in the table of its feed, for feeds with a definition. The table belongs to the user, so
-- the columns of the consolidation cannot be there.
CREATE TABLE feed_records (
    feed           TEXT NOT NULL,
    record_id      TEXT NOT NULL,
    -- The table and the primary key of the row, as {"public.orders": {"id": "5"}}. NULL if rows are only appended, or
    -- there was never one.
    row_key        TEXT,
    -- The payload and the mapper that the row was built from. The hash of an absent record is empty, so that its row is
    -- built again once the source lists it.
    built_hash     BLOB NOT NULL,
    mapper_version INTEGER NOT NULL,
    -- deleted: the record says so itself. absent: the source no longer has it.
    state          TEXT NOT NULL,
    updated_at     INTEGER NOT NULL,
    PRIMARY KEY (feed, record_id),
    CONSTRAINT record_state_is_known CHECK (state IN ('active', 'deleted', 'absent'))
) STRICT;
-- Finds other records with the same row, before the row is deleted.
CREATE INDEX feed_records_row ON feed_records (feed, row_key);

CREATE TABLE diamonds (
    feed                  TEXT NOT NULL,
    supplier_stone_id     TEXT NOT NULL,
    offer_id              TEXT,
    status                TEXT NOT NULL DEFAULT 'active',
    shape                 TEXT NOT NULL,
    carats                REAL NOT NULL,
    color                 TEXT,
    clarity               TEXT,
    cut                   TEXT,
    polish                TEXT,
    symmetry              TEXT,
    fluorescence          TEXT,
    fancy_color           TEXT,
    fancy_intensity       TEXT,
    fancy_overtone        TEXT,
    lab_grown             INTEGER NOT NULL,
    treated               INTEGER NOT NULL,
    ratio                 REAL,
    availability          TEXT NOT NULL,
    raw_availability      TEXT,
    hold_id               TEXT,
    feed_price_cents      INTEGER NOT NULL,
    price_per_carat_cents INTEGER NOT NULL,
    retail_price_cents    INTEGER NOT NULL,
    markup_ratio          REAL NOT NULL,
    rating                INTEGER,
    rule_id               INTEGER,
    image_url             TEXT,
    video_url             TEXT,
    certificate_lab       TEXT,
    certificate_number    TEXT,
    certificate_url       TEXT,
    table_pct             REAL,
    depth_pct             REAL,
    length_mm             REAL,
    width_mm              REAL,
    depth_mm              REAL,
    girdle                TEXT,
    culet_size            TEXT,
    eye_clean             INTEGER,
    supplier_name         TEXT,
    -- The payload, mapper and rules that the row was built from. The consolidator rebuilds a row when they differ.
    payload_hash          BLOB NOT NULL,
    mapper_version        INTEGER NOT NULL,
    rules_version         INTEGER NOT NULL,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    deleted_at            INTEGER,
    PRIMARY KEY (feed, supplier_stone_id),
    CONSTRAINT stone_status_is_known CHECK (status IN ('active', 'deleted')),
    CONSTRAINT stone_deleted_iff_at CHECK ((status = 'deleted') = (deleted_at IS NOT NULL))
) STRICT;

CREATE TABLE pricing_rules (
    id           INTEGER PRIMARY KEY,
    priority     INTEGER NOT NULL DEFAULT 100,
    feed         TEXT,
    stone_type   TEXT,
    lab_grown    INTEGER,
    shapes       TEXT NOT NULL DEFAULT '[]',
    carat_min    REAL,
    carat_max    REAL,
    price_min    REAL,
    price_max    REAL,
    markup_ratio REAL NOT NULL,
    rating       INTEGER,
    active       INTEGER NOT NULL DEFAULT 1,
    created_at   INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    updated_at   INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    CONSTRAINT rule_stone_type_is_known CHECK (stone_type IN ('natural', 'lab', 'fancy')),
    CONSTRAINT rule_carats_are_a_range CHECK (carat_min <= carat_max),
    CONSTRAINT rule_prices_are_a_range CHECK (price_min <= price_max),
    CONSTRAINT rule_rating_is_known CHECK (rating BETWEEN 1 AND 10),
    CONSTRAINT rule_markup_is_positive CHECK (markup_ratio > 0)
) STRICT;
-- The default rule.
INSERT INTO pricing_rules (priority, markup_ratio, rating) VALUES (1000, 1.15, 5);

-- Snapshots of the rules: a sync uses one snapshot, so that a change of the rules cannot mix prices.
CREATE TABLE rule_sets (
    version    INTEGER PRIMARY KEY,
    digest     TEXT NOT NULL UNIQUE,
    rules      TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Records that could not be stored or mapped, with the reason. Removed once the record is in the canonical table.
CREATE TABLE rejected_rows (
    feed         TEXT NOT NULL,
    record_id    TEXT NOT NULL,
    run_id       TEXT NOT NULL,
    partition_id TEXT,
    stage        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    payload      TEXT NOT NULL,
    times        INTEGER NOT NULL DEFAULT 1,
    first_at     INTEGER NOT NULL,
    last_at      INTEGER NOT NULL,
    -- Whether a unique key of the table refused the row: it is written again after the deletes of the sync.
    is_unique_violation INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (feed, record_id),
    CONSTRAINT reject_stage_is_known CHECK (stage IN ('fetch', 'store', 'map', 'upsert', 'delete'))
) STRICT;

-- Ranges of the partition field that the watermark passed without their records.
CREATE TABLE feed_gaps (
    gap_id       INTEGER PRIMARY KEY,
    feed         TEXT NOT NULL,
    range_from   INTEGER NOT NULL,
    range_to     INTEGER NOT NULL,
    updated_from INTEGER,
    updated_to   INTEGER NOT NULL,
    -- The sync that left the gap, and the one that closed it.
    left_by      TEXT NOT NULL,
    reason       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    closed_by    TEXT,
    closed_at    INTEGER
) STRICT;
CREATE INDEX feed_gaps_open ON feed_gaps (feed) WHERE closed_at IS NULL;

-- Every change of a feed's watermark, by syncs and by operators.
CREATE TABLE watermark_changes (
    feed       TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    before_at  INTEGER,
    after_at   INTEGER,
    run_id     TEXT,
    by_whom    TEXT NOT NULL,
    note       TEXT,
    PRIMARY KEY (feed, changed_at)
) STRICT;

------------------------------------------------------------------------------
-- Alerts and webhooks
------------------------------------------------------------------------------

-- Alerts. Each is written in the transaction that it reports on. created_at is when it began, sent_at when it was
-- handed to the deliveries (NULL: not yet). Alerts with the same kind and subject count on one row until it is
-- resolved; an empty subject stands for itself.
CREATE TABLE alerts (
    alert_id    INTEGER PRIMARY KEY,
    kind        TEXT NOT NULL,
    feed        TEXT,
    run_id      TEXT,
    message     TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    sent_at     INTEGER,
    subject     TEXT NOT NULL DEFAULT '',
    project_id  TEXT,
    last_at     INTEGER,
    times       INTEGER NOT NULL DEFAULT 1,
    resolved_at INTEGER
) STRICT;
CREATE INDEX alerts_unsent ON alerts (alert_id) WHERE sent_at IS NULL;
CREATE UNIQUE INDEX alerts_open ON alerts (kind, subject) WHERE resolved_at IS NULL AND subject <> '';
CREATE INDEX alerts_project ON alerts (project_id, alert_id);

-- Runs whose end may raise or resolve an alert. Written in the transaction that ends the run.
CREATE TABLE run_notices (
    run_id TEXT PRIMARY KEY
) STRICT;

CREATE TABLE deliveries (
    -- The same for every attempt, so that a receiver can ignore repeated ones.
    delivery_id TEXT PRIMARY KEY,
    target      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    grp         TEXT NOT NULL,
    alert_id    INTEGER NOT NULL,
    -- The alert as it is sent: the same in every attempt.
    alert       TEXT NOT NULL,
    -- The number of further alerts of the group that this delivery covers.
    held        INTEGER NOT NULL DEFAULT 0,
    attempt     INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER NOT NULL,
    -- When the next attempt may start: when due, after a back-off, or when the current attempt has timed out.
    next_at     INTEGER NOT NULL,
    sent_at     INTEGER,
    dead_at     INTEGER,
    error       TEXT,
    created_at  INTEGER NOT NULL,
    CONSTRAINT delivery_is_sent_or_dead CHECK (sent_at IS NULL OR dead_at IS NULL)
) STRICT;
CREATE UNIQUE INDEX deliveries_waiting ON deliveries (target, kind, grp)
    WHERE attempt = 0 AND sent_at IS NULL AND dead_at IS NULL;
CREATE INDEX deliveries_due ON deliveries (next_at) WHERE sent_at IS NULL AND dead_at IS NULL;
CREATE INDEX deliveries_of_group ON deliveries (target, kind, grp, due_at);

CREATE TABLE hooks (
    hook       TEXT PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects,
    kind       TEXT NOT NULL,
    -- The name of an environment variable. No secret is stored.
    secret_env TEXT NOT NULL,
    rules      TEXT NOT NULL,
    -- The author of the definition. The operator's lists apply to definitions of projects.
    defined_by TEXT NOT NULL,
    paused_at  INTEGER,
    created_at INTEGER NOT NULL,
    CONSTRAINT hook_author_is_known CHECK (defined_by IN ('operator', 'project')),
    -- Differs: SQLite has no regular expressions; Rust checks the name.
    CONSTRAINT hook_kind_is_known CHECK (kind IN ('github', 'generic'))
) STRICT;

-- Signed bodies that queued a run. A body is executed once, because the ids of deliveries are not signed.
CREATE TABLE hook_deliveries (
    hook        TEXT NOT NULL,
    -- SHA-256 of the body.
    body_hash   TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (hook, body_hash)
) STRICT;
CREATE INDEX hook_deliveries_old ON hook_deliveries (received_at);

------------------------------------------------------------------------------
-- Access: tokens, browser sessions, audit log. Tokens and cookies are stored as SHA-256 only
------------------------------------------------------------------------------

CREATE TABLE tokens (
    token_id     TEXT NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    hash         TEXT NOT NULL UNIQUE,
    role         TEXT NOT NULL,
    -- NULL: all projects. Sorted, so that equal sets are equal lists.
    projects     TEXT,
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    revoked_by   TEXT,
    -- Written at most once a minute.
    last_used_at INTEGER,
    CONSTRAINT token_role_is_known CHECK (role IN ('viewer', 'operator', 'worker', 'agent', 'admin')),
    CONSTRAINT token_projects_are_not_empty CHECK (json_array_length(projects) > 0),
    CONSTRAINT token_hash_is_a_hash CHECK (length(hash) = 64 AND hash NOT GLOB '*[^0-9a-f]*')
) STRICT;

CREATE TABLE sessions (
    hash         TEXT NOT NULL PRIMARY KEY,
    -- A session is valid as long as its token.
    token_id     TEXT NOT NULL REFERENCES tokens ON DELETE CASCADE,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    CONSTRAINT session_hash_is_a_hash CHECK (length(hash) = 64 AND hash NOT GLOB '*[^0-9a-f]*')
) STRICT;
CREATE INDEX sessions_of_token ON sessions (token_id);
CREATE INDEX sessions_by_end ON sessions (expires_at);

-- Without foreign keys: entries stay when their project or token is removed. AUTOINCREMENT: an id is never used twice,
-- even after the youngest rows were removed.
CREATE TABLE audit (
    audit_id   INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    -- One entry per call, also if its transaction is retried after a lost response.
    call_id    TEXT NOT NULL UNIQUE,
    who        TEXT NOT NULL,
    token_id   TEXT,
    role       TEXT NOT NULL,
    action     TEXT NOT NULL,
    subject    TEXT,
    project_id TEXT,
    outcome    TEXT NOT NULL DEFAULT 'applied',
    detail     TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(detail)),
    source     TEXT,
    -- NULL until the entry is sealed.
    seal_no    INTEGER,
    CONSTRAINT audit_role_is_known
        CHECK (role IN ('viewer', 'operator', 'worker', 'agent', 'admin', 'hook', 'schedule')),
    CONSTRAINT audit_outcome_is_known CHECK (outcome IN ('applied', 'refused'))
) STRICT;
CREATE INDEX audit_of_project ON audit (project_id, audit_id);
CREATE INDEX audit_unsealed ON audit (audit_id) WHERE seal_no IS NULL;
CREATE INDEX audit_of_seal ON audit (seal_no, audit_id) WHERE seal_no IS NOT NULL;

-- The hash chain of the audit log. Each seal covers the seal before it and a batch of entries.
CREATE TABLE audit_seals (
    seal_no   INTEGER NOT NULL PRIMARY KEY,
    sealed_at INTEGER NOT NULL,
    previous  TEXT NOT NULL,
    -- Ids and hashes of the entries.
    entries   TEXT NOT NULL CHECK (json_valid(entries)),
    hash      TEXT NOT NULL,
    -- Time of the newest entry, for retention.
    newest_at INTEGER NOT NULL,
    -- Set when retention removes the entries. The last such seal is the anchor of the chain.
    pruned_at INTEGER,
    CONSTRAINT seal_hashes_are_hashes CHECK (length(previous) = 64 AND previous NOT GLOB '*[^0-9a-f]*'
        AND length(hash) = 64 AND hash NOT GLOB '*[^0-9a-f]*')
) STRICT;

------------------------------------------------------------------------------
-- Graphs: jobs and tasks, agents, pools. Only the holder of the controller lease changes the code of a job; others
-- write columns of their own, and name the job in job_changes in the same transaction
------------------------------------------------------------------------------

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
    -- created_at of the run.
    created_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX graphs_of_name ON graphs (name, created_at, run_id) WHERE name IS NOT NULL;

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
    -- Columns of the spec that the controller reads often.
    labels       TEXT NOT NULL,
    weight       INTEGER NOT NULL,
    pool         TEXT,
    retries      INTEGER NOT NULL,
    -- Seconds of silence of the agent after which the job is lost. NULL: the job waits for its agent.
    lost_secs    INTEGER,
    -- Only the controller writes these columns.
    code         TEXT NOT NULL DEFAULT 'created',
    message      TEXT,
    errors       INTEGER NOT NULL DEFAULT 0,
    failures     INTEGER NOT NULL DEFAULT 0,
    not_before   INTEGER,
    task_number  INTEGER NOT NULL DEFAULT 0,
    task_id      TEXT,
    agent_id     TEXT,
    exit_code    INTEGER,
    -- Whether the cancel of its last task is not confirmed yet: until then the job uses capacity.
    stopping     INTEGER NOT NULL DEFAULT 0,
    version      INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    started_at   INTEGER,
    ended_at     INTEGER,
    updated_at   INTEGER NOT NULL,
    -- Users write these columns.
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
-- The controller reads all live jobs: this index contains no ended ones.
CREATE INDEX jobs_live ON jobs (job_id) WHERE ended_at IS NULL OR stopping;
CREATE INDEX jobs_live_of_run ON jobs (run_id) WHERE ended_at IS NULL OR stopping;
CREATE INDEX jobs_latest ON jobs (project_id, workspace, name, created_at, run_id);
CREATE INDEX jobs_changed ON jobs (run_id, version);

CREATE TABLE job_needs (
    job_id TEXT NOT NULL,
    needs  TEXT NOT NULL,
    PRIMARY KEY (job_id, needs)
) STRICT;

-- Jobs that the controller has to read, or whole runs that are new or cancelled. The version shows whether there was
-- another change while it read.
CREATE TABLE job_changes (
    subject TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT;

-- Every change of a job's code. A trigger writes the rows.
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
    -- Only the controller writes these columns.
    active     INTEGER NOT NULL DEFAULT 1,
    end_cause  TEXT,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER,
    -- Only the agent writes these columns.
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
    -- The job and the agent that created the file. They differ from job_id if the result was reused.
    made_by    TEXT NOT NULL,
    agent_id   TEXT,
    PRIMARY KEY (job_id, task_id, name, path)
) STRICT;
-- The outputs that an agent made and still has.
CREATE INDEX job_outputs_of_agent ON job_outputs (agent_id, made_by) WHERE agent_id IS NOT NULL;

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
    -- The projects of its token. NULL: all projects.
    projects      TEXT,
    -- The token with which the agent registered: no other token may speak for it, and a token of role agent speaks for
    -- no other agent.
    token_id      TEXT,
    -- The hash of the current process's id: an earlier process is refused.
    boot_id       TEXT NOT NULL,
    draining      INTEGER NOT NULL DEFAULT 0,
    registered_at INTEGER NOT NULL,
    seen_at       INTEGER NOT NULL,
    left_at       INTEGER,
    forgotten_at  INTEGER,
    -- SHA-256 of the secret in the agent's directory. Each registration proves and replaces it.
    secret_hash   TEXT NOT NULL,
    -- The lock of the agent's directory on its machine: a copy of the directory has another one.
    dir_lock      TEXT,
    -- The mechanisms that isolate the tasks of the agent, each with `yes` or a reason; NULL if it does not report them.
    isolation     TEXT CHECK (isolation IS NULL OR json_valid(isolation)),
    CONSTRAINT agent_capacity_is_positive CHECK (capacity > 0)
) STRICT;

CREATE TABLE pools (
    name TEXT NOT NULL PRIMARY KEY,
    size INTEGER NOT NULL,
    CONSTRAINT pool_size_is_not_negative CHECK (size >= 0)
) STRICT;
INSERT INTO pools (name, size) VALUES ('database', 4);

-- The lease of the controller. A takeover raises the epoch, which fences off the previous holder. version is the last
-- version of a job: only the holder raises it, so that it has no gaps.
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
