-- Lane 3: feeds, syncs, partitions, pages, raw records, the canonical table, prices.
-- Differs: types, as in 0001_kernel.sql (see codec.rs); digests are blobs, money is whole cents in both, and numbers
-- with decimals are REAL. One file has one schema.
-- The six tables that the operators of a pipeline know by name are in their own schema; what Tidemill keeps besides
-- is with the kernel.

CREATE TABLE feeds (
    feed                  TEXT NOT NULL PRIMARY KEY,
    project_id            TEXT NOT NULL REFERENCES projects,
    kind                  TEXT NOT NULL,
    endpoint              TEXT NOT NULL,
    username              TEXT,
    -- The name of an environment variable. No password is ever kept.
    password_env          TEXT,
    rate                  INTEGER NOT NULL,
    settings              TEXT NOT NULL DEFAULT '{}',
    -- How far the feed is consolidated, in the source's time.
    last_updated_at       INTEGER,
    last_run_id           TEXT,
    last_run_completed_at INTEGER,
    -- Where the copy of the watermark goes, which one is there, and what went wrong with the last.
    copy_url              TEXT,
    copied_updated_at     INTEGER,
    copied_at             INTEGER,
    copy_error            TEXT,
    -- Whether it answers, as its circuit says; the number names which state a change believes in.
    circuit               TEXT NOT NULL DEFAULT '{"state": "closed", "outages": 0}',
    circuit_rev           INTEGER NOT NULL DEFAULT 0,
    circuit_reason        TEXT,
    created_at            INTEGER NOT NULL,
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
    -- The attempt that works on it now: the first bears the same id, its successors their own.
    ops_run_id                 TEXT NOT NULL,
    state                      TEXT NOT NULL,
    updated_from               INTEGER,
    updated_to                 INTEGER NOT NULL,
    page_size                  INTEGER NOT NULL,
    granularity                INTEGER NOT NULL,
    predicted                  INTEGER NOT NULL DEFAULT 0,
    count_calls                INTEGER NOT NULL DEFAULT 0,
    scan_ms                    INTEGER NOT NULL DEFAULT 0,
    -- What the scan counted: ranges of prices with their counts, for the picture.
    heatmap                    TEXT NOT NULL DEFAULT '[]',
    -- Raised whenever work is given out again, so that old messages cannot be taken for new ones.
    generation                 INTEGER NOT NULL DEFAULT 0,
    rules_version              INTEGER,
    -- Consolidate although partitions have failed; move the watermark although they have.
    forced                     INTEGER NOT NULL DEFAULT 0,
    advance                    INTEGER NOT NULL DEFAULT 0,
    error                      TEXT,
    consolidation_started_at   INTEGER,
    consolidation_completed_at INTEGER,
    consolidation_processed    INTEGER NOT NULL DEFAULT 0,
    consolidation_errors       INTEGER NOT NULL DEFAULT 0,
    consolidation_total        INTEGER NOT NULL DEFAULT 0,
    deleted                    INTEGER NOT NULL DEFAULT 0,
    -- Why nothing was deleted, where something would have been.
    delete_note                TEXT,
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
    price_from        INTEGER NOT NULL,
    price_to          INTEGER NOT NULL,
    predicted         INTEGER NOT NULL,
    -- How far the source's list has moved to the left under us, and how often we read it from the start.
    shift             INTEGER NOT NULL DEFAULT 0,
    pass              INTEGER NOT NULL DEFAULT 1,
    -- What the source counted after the last page.
    recount           INTEGER,
    fetched           INTEGER NOT NULL DEFAULT 0,
    stored            INTEGER NOT NULL DEFAULT 0,
    changed           INTEGER NOT NULL DEFAULT 0,
    rejected          INTEGER NOT NULL DEFAULT 0,
    -- Up to which offset its pages are in the canonical table, how many stones that were, and how many were refused.
    consolidated_to   INTEGER NOT NULL DEFAULT 0,
    consolidated      INTEGER NOT NULL DEFAULT 0,
    refused           INTEGER NOT NULL DEFAULT 0,
    -- A page that failed for a reason of its own: how often, and why.
    faults            INTEGER NOT NULL DEFAULT 0,
    error             TEXT,
    -- Asked for by a retry: read it again from its beginning.
    restart           INTEGER NOT NULL DEFAULT 0,
    -- What of the range is read: everything, or what was updated since.
    updated_from      INTEGER,
    -- Covers a range that the watermark had passed over.
    gap_id            INTEGER,
    first_page_at     INTEGER,
    ended_at          INTEGER,
    PRIMARY KEY (run_id, partition_id),
    CONSTRAINT partition_state_is_known
        CHECK (state IN ('pending', 'in_progress', 'fetching_pages', 'completed', 'failed')),
    CONSTRAINT partition_completed_iff CHECK (completed = (state = 'completed')),
    CONSTRAINT partition_failed_iff CHECK (failed = (state = 'failed')),
    CONSTRAINT partition_is_a_range CHECK (price_from < price_to)
) STRICT;

-- One row per page: what it brought. The record, the set of stones that were seen, and the unit of consolidation.
CREATE TABLE pages (
    run_id       TEXT NOT NULL,
    partition_id TEXT NOT NULL,
    page_offset  INTEGER NOT NULL,
    pass         INTEGER NOT NULL,
    fetched      INTEGER NOT NULL,
    stored       INTEGER NOT NULL,
    changed      INTEGER NOT NULL,
    page_hash    BLOB NOT NULL,
    stone_ids    TEXT NOT NULL,
    stored_at    INTEGER NOT NULL,
    PRIMARY KEY (run_id, partition_id, page_offset)
) STRICT;

-- The record of each stone as its feed gave it last. Every feed's: the name is the one that operators know.
CREATE TABLE raw_diamonds_nivoda (
    feed              TEXT NOT NULL,
    supplier_stone_id TEXT NOT NULL,
    offer_id          TEXT,
    run_id            TEXT NOT NULL,
    payload           TEXT NOT NULL,
    payload_hash      BLOB NOT NULL,
    source_updated_at INTEGER,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    PRIMARY KEY (feed, supplier_stone_id)
) STRICT;

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
    -- Exactly what the row was built from: a stone is open while these are not what it should be built from.
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
-- What everything costs that no other rule names.
INSERT INTO pricing_rules (priority, markup_ratio, rating) VALUES (1000, 1.15, 5);

-- The rules as they stood when a sync began to price: a rule that is edited meanwhile mixes no prices.
CREATE TABLE rule_sets (
    version    INTEGER PRIMARY KEY,
    digest     TEXT NOT NULL UNIQUE,
    rules      TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- What could not be stored or mapped, and why. Gone once the stone is in the canonical table.
CREATE TABLE rejected_rows (
    feed              TEXT NOT NULL,
    supplier_stone_id TEXT NOT NULL,
    run_id            TEXT NOT NULL,
    partition_id      TEXT,
    stage             TEXT NOT NULL,
    reason            TEXT NOT NULL,
    payload           TEXT NOT NULL,
    times             INTEGER NOT NULL DEFAULT 1,
    first_at          INTEGER NOT NULL,
    last_at           INTEGER NOT NULL,
    PRIMARY KEY (feed, supplier_stone_id),
    CONSTRAINT reject_stage_is_known CHECK (stage IN ('fetch', 'store', 'map', 'upsert'))
) STRICT;

-- Ranges that the watermark passed without covering them.
CREATE TABLE feed_gaps (
    gap_id       INTEGER PRIMARY KEY,
    feed         TEXT NOT NULL,
    price_from   INTEGER NOT NULL,
    price_to     INTEGER NOT NULL,
    updated_from INTEGER,
    updated_to   INTEGER NOT NULL,
    -- The sync that left it, and the one that closed it.
    left_by      TEXT NOT NULL,
    reason       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    closed_by    TEXT,
    closed_at    INTEGER
) STRICT;
CREATE INDEX feed_gaps_open ON feed_gaps (feed) WHERE closed_at IS NULL;

-- Every change of a feed's watermark, by syncs and by people.
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

-- What people should hear of: written in the commit that it tells of, sent by whoever sends.
CREATE TABLE alerts (
    alert_id   INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL,
    feed       TEXT,
    run_id     TEXT,
    message    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    sent_at    INTEGER
) STRICT;
CREATE INDEX alerts_unsent ON alerts (alert_id) WHERE sent_at IS NULL;
