-- Alerts that last, and the outbox that takes them to people; webhooks that come in.

-- `created_at` is when an alert began, `sent_at` when it was handed to the outbox; NULL while that is to be done.
-- What an older binary writes has no subject: each such alert stands for itself.
ALTER TABLE {ops}.alerts
    ADD COLUMN subject     text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN project_id  text COLLATE "C",
    ADD COLUMN last_at     timestamptz,
    ADD COLUMN times       integer NOT NULL DEFAULT 1,
    ADD COLUMN resolved_at timestamptz;
UPDATE {ops}.alerts SET resolved_at = created_at, sent_at = coalesce(sent_at, created_at);
CREATE UNIQUE INDEX alerts_lasting ON {ops}.alerts (kind, subject) WHERE resolved_at IS NULL AND subject <> '';
CREATE INDEX alerts_project ON {ops}.alerts (project_id, alert_id);

-- Ends of runs that people may have to be told of, written in the commit that ends the run.
CREATE TABLE {ops}.run_notices (
    run_id text COLLATE "C" PRIMARY KEY
);

CREATE TABLE {ops}.deliveries (
    -- Made once, and sent with every try, so that a receiver knows what it has.
    delivery_id text COLLATE "C" PRIMARY KEY,
    target      text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    grp         text COLLATE "C" NOT NULL,
    alert_id    bigint NOT NULL,
    -- The alert as it is told. No try tells something else than the one before.
    alert       jsonb NOT NULL,
    -- Further alerts of the group that this one stands for.
    held        integer NOT NULL DEFAULT 0,
    attempt     integer NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL,
    -- When it may be tried: when it is due, after a back-off, or when the process that tries it took too long.
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
CREATE INDEX deliveries_pace ON {ops}.deliveries (target, kind, grp, due_at);

CREATE TABLE {ops}.hooks (
    hook       text COLLATE "C" PRIMARY KEY,
    project_id text COLLATE "C" NOT NULL REFERENCES {ops}.projects,
    kind       text COLLATE "C" NOT NULL,
    -- The name of an environment variable. No secret is ever kept.
    secret_env text NOT NULL,
    rules      jsonb NOT NULL,
    paused_at  timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT hook_is_a_name CHECK (hook ~ '^[a-z0-9][a-z0-9-]*$'),
    CONSTRAINT hook_kind_is_known CHECK (kind = ANY ('{github,generic}'))
);
