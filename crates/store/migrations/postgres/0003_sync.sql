-- Lane 3: feeds, syncs, partitions, pages, raw records, the canonical table, prices.
-- The six tables that the operators of a pipeline know by name are in their own schema; what Tidemill keeps besides
-- is with the kernel.

CREATE TABLE {ops}.feeds (
    feed                  text COLLATE "C" PRIMARY KEY,
    project_id            text COLLATE "C" NOT NULL REFERENCES {ops}.projects,
    kind                  text COLLATE "C" NOT NULL,
    endpoint              text NOT NULL,
    username              text,
    -- The name of an environment variable. No password is ever kept.
    password_env          text,
    rate                  integer NOT NULL,
    settings              jsonb NOT NULL DEFAULT '{}',
    -- How far the feed is consolidated, in the source's time.
    last_updated_at       timestamptz,
    last_run_id           uuid,
    last_run_completed_at timestamptz,
    -- Where the copy of the watermark goes, which one is there, and what went wrong with the last.
    copy_url              text,
    copied_updated_at     timestamptz,
    copied_at             timestamptz,
    copy_error            text,
    -- Whether it answers, as its circuit says; the number names which state a change believes in.
    circuit               jsonb NOT NULL DEFAULT '{"state": "closed", "outages": 0}',
    circuit_rev           integer NOT NULL DEFAULT 0,
    circuit_reason        text,
    created_at            timestamptz NOT NULL,
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
    -- The attempt that works on it now: the first bears the same id, its successors their own.
    ops_run_id                 text COLLATE "C" NOT NULL,
    state                      text COLLATE "C" NOT NULL,
    updated_from               timestamptz,
    updated_to                 timestamptz NOT NULL,
    page_size                  integer NOT NULL,
    granularity                bigint NOT NULL,
    predicted                  bigint NOT NULL DEFAULT 0,
    count_calls                integer NOT NULL DEFAULT 0,
    scan_ms                    bigint NOT NULL DEFAULT 0,
    -- What the scan counted: ranges of prices with their counts, for the picture.
    heatmap                    jsonb NOT NULL DEFAULT '[]',
    -- Raised whenever work is given out again, so that old messages cannot be taken for new ones.
    generation                 integer NOT NULL DEFAULT 0,
    rules_version              integer,
    -- Consolidate although partitions have failed; move the watermark although they have.
    forced                     boolean NOT NULL DEFAULT false,
    advance                    boolean NOT NULL DEFAULT false,
    error                      text,
    consolidation_started_at   timestamptz,
    consolidation_completed_at timestamptz,
    consolidation_processed    bigint NOT NULL DEFAULT 0,
    consolidation_errors       bigint NOT NULL DEFAULT 0,
    consolidation_total        bigint NOT NULL DEFAULT 0,
    deleted                    bigint NOT NULL DEFAULT 0,
    -- Why nothing was deleted, where something would have been.
    delete_note                text,
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
    price_from        bigint NOT NULL,
    price_to          bigint NOT NULL,
    predicted         bigint NOT NULL,
    -- How far the source's list has moved to the left under us, and how often we read it from the start.
    shift             integer NOT NULL DEFAULT 0,
    pass              integer NOT NULL DEFAULT 1,
    -- What the source counted after the last page.
    recount           bigint,
    fetched           bigint NOT NULL DEFAULT 0,
    stored            bigint NOT NULL DEFAULT 0,
    changed           bigint NOT NULL DEFAULT 0,
    rejected          bigint NOT NULL DEFAULT 0,
    -- Up to which offset its pages are in the canonical table, how many stones that were, and how many were refused.
    consolidated_to   integer NOT NULL DEFAULT 0,
    consolidated      bigint NOT NULL DEFAULT 0,
    refused           bigint NOT NULL DEFAULT 0,
    -- A page that failed for a reason of its own: how often, and why.
    faults            integer NOT NULL DEFAULT 0,
    error             text,
    -- Asked for by a retry: read it again from its beginning.
    restart           boolean NOT NULL DEFAULT false,
    -- What of the range is read: everything, or what was updated since.
    updated_from      timestamptz,
    -- Covers a range that the watermark had passed over.
    gap_id            bigint,
    first_page_at     timestamptz,
    ended_at          timestamptz,
    PRIMARY KEY (run_id, partition_id),
    CONSTRAINT partition_state_is_known
        CHECK (state = ANY ('{pending,in_progress,fetching_pages,completed,failed}')),
    CONSTRAINT partition_completed_iff CHECK (completed = (state = 'completed')),
    CONSTRAINT partition_failed_iff CHECK (failed = (state = 'failed')),
    CONSTRAINT partition_is_a_range CHECK (price_from < price_to)
) WITH (fillfactor = 40);

-- One row per page: what it brought. The record, the set of stones that were seen, and the unit of consolidation.
CREATE TABLE {ops}.pages (
    run_id       uuid NOT NULL,
    partition_id text COLLATE "C" NOT NULL,
    page_offset  integer NOT NULL,
    pass         integer NOT NULL,
    fetched      integer NOT NULL,
    stored       integer NOT NULL,
    changed      integer NOT NULL,
    page_hash    bytea NOT NULL,
    -- Names of stones are UUIDs as a rule, and take less than half the room as such. One of the two is there.
    stone_ids    text[],
    stone_uuids  uuid[],
    stored_at    timestamptz NOT NULL,
    PRIMARY KEY (run_id, partition_id, page_offset),
    CONSTRAINT page_has_stones CHECK ((stone_ids IS NULL) <> (stone_uuids IS NULL))
);

-- The record of each stone as its feed gave it last. Every feed's: the name is the one that operators know.
CREATE TABLE {sync}.raw_diamonds_nivoda (
    feed              text COLLATE "C" NOT NULL,
    supplier_stone_id text COLLATE "C" NOT NULL,
    offer_id          text,
    run_id            uuid NOT NULL,
    payload           jsonb NOT NULL,
    payload_hash      bytea NOT NULL,
    source_updated_at timestamptz,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    PRIMARY KEY (feed, supplier_stone_id)
);

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
    -- Exactly what the row was built from: a stone is open while these are not what it should be built from.
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
-- What everything costs that no other rule names.
INSERT INTO {sync}.pricing_rules (priority, markup_ratio, rating) VALUES (1000, 1.15, 5);

-- The rules as they stood when a sync began to price: a rule that is edited meanwhile mixes no prices.
CREATE TABLE {ops}.rule_sets (
    version    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest     text COLLATE "C" NOT NULL UNIQUE,
    rules      jsonb NOT NULL,
    created_at timestamptz NOT NULL
);

-- What could not be stored or mapped, and why. Gone once the stone is in the canonical table.
CREATE TABLE {ops}.rejected_rows (
    feed              text COLLATE "C" NOT NULL,
    supplier_stone_id text COLLATE "C" NOT NULL,
    run_id            uuid NOT NULL,
    partition_id      text COLLATE "C",
    stage             text COLLATE "C" NOT NULL,
    reason            text NOT NULL,
    payload           text NOT NULL,
    times             integer NOT NULL DEFAULT 1,
    first_at          timestamptz NOT NULL,
    last_at           timestamptz NOT NULL,
    PRIMARY KEY (feed, supplier_stone_id),
    CONSTRAINT reject_stage_is_known CHECK (stage = ANY ('{fetch,store,map,upsert}'))
);

-- Ranges that the watermark passed without covering them.
CREATE TABLE {ops}.feed_gaps (
    gap_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    feed         text COLLATE "C" NOT NULL,
    price_from   bigint NOT NULL,
    price_to     bigint NOT NULL,
    updated_from timestamptz,
    updated_to   timestamptz NOT NULL,
    -- The sync that left it, and the one that closed it.
    left_by      uuid NOT NULL,
    reason       text NOT NULL,
    created_at   timestamptz NOT NULL,
    closed_by    uuid,
    closed_at    timestamptz
);
CREATE INDEX feed_gaps_open ON {ops}.feed_gaps (feed) WHERE closed_at IS NULL;

-- Every change of a feed's watermark, by syncs and by people.
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

-- What people should hear of: written in the commit that it tells of, sent by whoever sends.
CREATE TABLE {ops}.alerts (
    alert_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind       text COLLATE "C" NOT NULL,
    feed       text COLLATE "C",
    run_id     text COLLATE "C",
    message    text NOT NULL,
    created_at timestamptz NOT NULL,
    sent_at    timestamptz
);
CREATE INDEX alerts_unsent ON {ops}.alerts (alert_id) WHERE sent_at IS NULL;
