-- The queue: leased messages, and how each queue treats them.
-- A message is one row for its whole life. A completed one stays, without its body, while its id is to be remembered:
-- the primary key then refuses a duplicate, whoever sends it and at whatever moment. A second table for what is done
-- costs as much to write, and between the two a duplicate could slip.

CREATE TABLE {ops}.queues (
    queue          text COLLATE "C" PRIMARY KEY,
    lock_secs      integer NOT NULL,
    deliveries_max integer NOT NULL,
    -- How long a completed message is remembered. NULL: not at all.
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

-- No check and no foreign key on it: each would be prepared anew for every statement of the hot path. Only the
-- statements of the queue write here.
CREATE TABLE {ops}.messages (
    queue       text COLLATE "C" NOT NULL,
    message_id  text COLLATE "C" NOT NULL,
    generation  integer NOT NULL,
    -- Whose message it is. Groups take turns.
    grp         text COLLATE "C" NOT NULL,
    state       text COLLATE "C" NOT NULL DEFAULT 'live',
    -- NULL once the message is done.
    body        jsonb,
    run_id      text COLLATE "C",
    trace_id    text COLLATE "C",
    enqueued_at timestamptz NOT NULL,
    -- Its place in line: when it was sent or given back, and after its delay. A lock does not change it.
    ready_at    timestamptz NOT NULL,
    -- When it may be received: after its delay, or when its lock ends. A lock needs nobody to end it.
    visible_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    -- The worker process that holds it, or held it when it was completed.
    locked_by   uuid,
    epoch       integer NOT NULL DEFAULT 0,
    deliveries  integer NOT NULL DEFAULT 0,
    -- When it was completed, or became a dead letter.
    ended_at    timestamptz,
    dead_reason text COLLATE "C",
    last_error  text,
    PRIMARY KEY (queue, message_id, generation)
) WITH (fillfactor = 55, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- The one index of the hot path: what waits and what is locked, by group. What is done is not in it. To receive and to
-- renew change no column of an index: with room on its page, the row gets its new version there, and no index is
-- written. The price is that a receive reads past what is locked, and that is never much.
CREATE INDEX messages_ready ON {ops}.messages (queue, grp, ready_at) WHERE state = 'live';
CREATE INDEX messages_dead ON {ops}.messages (queue, ended_at, message_id, generation) WHERE state = 'dead';
