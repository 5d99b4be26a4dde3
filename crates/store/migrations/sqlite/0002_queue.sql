-- The queue: leased messages, and how each queue treats them.
-- A message is one row for its whole life. A completed one stays, without its body, while its id is to be remembered:
-- the primary key then refuses a duplicate, whoever sends it and at whatever moment.
-- Differs: times are microseconds, JSON is text, a worker's id is text (see codec.rs).

CREATE TABLE queues (
    queue          TEXT NOT NULL PRIMARY KEY,
    lock_secs      INTEGER NOT NULL,
    deliveries_max INTEGER NOT NULL,
    -- How long a completed message is remembered. NULL: not at all.
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
    -- Whose message it is. Groups take turns.
    grp         TEXT NOT NULL,
    state       TEXT NOT NULL DEFAULT 'live',
    -- NULL once the message is done.
    body        TEXT CHECK (body IS NULL OR json_valid(body)),
    run_id      TEXT,
    trace_id    TEXT,
    enqueued_at INTEGER NOT NULL,
    -- Its place in line: when it was sent or given back, and after its delay. A lock does not change it.
    ready_at    INTEGER NOT NULL,
    -- When it may be received: after its delay, or when its lock ends. A lock needs nobody to end it.
    visible_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    -- The worker process that holds it, or held it when it was completed.
    locked_by   TEXT,
    epoch       INTEGER NOT NULL DEFAULT 0,
    deliveries  INTEGER NOT NULL DEFAULT 0,
    -- When it was completed, or became a dead letter.
    ended_at    INTEGER,
    dead_reason TEXT,
    last_error  TEXT,
    PRIMARY KEY (queue, message_id, generation)
) STRICT;

-- The one index of the hot path: what waits and what is locked, by group. What is done is not in it. To receive and to
-- renew change no column of it.
CREATE INDEX messages_ready ON messages (queue, grp, ready_at) WHERE state = 'live';
CREATE INDEX messages_dead ON messages (queue, ended_at, message_id, generation) WHERE state = 'dead';
