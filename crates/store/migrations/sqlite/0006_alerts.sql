-- Alerts that last, and the outbox that takes them to people; webhooks that come in.

-- `created_at` is when an alert began, `sent_at` when it was handed to the outbox; NULL while that is to be done.
-- What an older binary writes has no subject: each such alert stands for itself.
ALTER TABLE alerts ADD COLUMN subject TEXT NOT NULL DEFAULT '';
ALTER TABLE alerts ADD COLUMN project_id TEXT;
ALTER TABLE alerts ADD COLUMN last_at INTEGER;
ALTER TABLE alerts ADD COLUMN times INTEGER NOT NULL DEFAULT 1;
ALTER TABLE alerts ADD COLUMN resolved_at INTEGER;
UPDATE alerts SET resolved_at = created_at, sent_at = coalesce(sent_at, created_at);
CREATE UNIQUE INDEX alerts_lasting ON alerts (kind, subject) WHERE resolved_at IS NULL AND subject <> '';
CREATE INDEX alerts_project ON alerts (project_id, alert_id);

-- Ends of runs that people may have to be told of, written in the commit that ends the run.
CREATE TABLE run_notices (
    run_id TEXT PRIMARY KEY
) STRICT;

CREATE TABLE deliveries (
    -- Made once, and sent with every try, so that a receiver knows what it has.
    delivery_id TEXT PRIMARY KEY,
    target      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    grp         TEXT NOT NULL,
    alert_id    INTEGER NOT NULL,
    -- The alert as it is told. No try tells something else than the one before.
    alert       TEXT NOT NULL,
    -- Further alerts of the group that this one stands for.
    held        INTEGER NOT NULL DEFAULT 0,
    attempt     INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER NOT NULL,
    -- When it may be tried: when it is due, after a back-off, or when the process that tries it took too long.
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
CREATE INDEX deliveries_pace ON deliveries (target, kind, grp, due_at);

CREATE TABLE hooks (
    hook       TEXT PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects,
    kind       TEXT NOT NULL,
    -- The name of an environment variable. No secret is ever kept.
    secret_env TEXT NOT NULL,
    rules      TEXT NOT NULL,
    paused_at  INTEGER,
    created_at INTEGER NOT NULL,
    -- Differs: no patterns; the name is checked before it comes here.
    CONSTRAINT hook_kind_is_known CHECK (kind IN ('github', 'generic'))
) STRICT;
