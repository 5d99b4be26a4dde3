-- Access: tokens, the sessions of browsers, and the record of what people did.
-- No secret is here: a token and the value of a cookie are kept as their SHA-256, and are shown once, when they are
-- made.
-- Differs: times are microseconds, JSON is text, UUIDs are text (see codec.rs).

CREATE TABLE tokens (
    token_id     TEXT NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    hash         TEXT NOT NULL UNIQUE,
    role         TEXT NOT NULL,
    -- NULL: all projects.
    project_id   TEXT REFERENCES projects,
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    revoked_by   TEXT,
    -- Written at most once a minute.
    last_used_at INTEGER,
    CONSTRAINT token_role_is_known CHECK (role IN ('viewer', 'operator', 'worker', 'agent', 'admin')),
    CONSTRAINT token_hash_is_a_hash CHECK (length(hash) = 64 AND hash NOT GLOB '*[^0-9a-f]*')
) STRICT;

CREATE TABLE sessions (
    hash         TEXT NOT NULL PRIMARY KEY,
    -- A session is worth what its token is worth.
    token_id     TEXT NOT NULL REFERENCES tokens ON DELETE CASCADE,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    CONSTRAINT session_hash_is_a_hash CHECK (length(hash) = 64 AND hash NOT GLOB '*[^0-9a-f]*')
) STRICT;
CREATE INDEX sessions_of_token ON sessions (token_id);
CREATE INDEX sessions_by_end ON sessions (expires_at);

-- Without foreign keys: what is on record stays on record when its project or token goes. AUTOINCREMENT: a place in
-- the record is never given twice, also after the youngest rows went.
CREATE TABLE audit (
    audit_id   INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    who        TEXT NOT NULL,
    token_id   TEXT,
    role       TEXT NOT NULL,
    action     TEXT NOT NULL,
    subject    TEXT,
    project_id TEXT,
    detail     TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(detail)),
    source     TEXT,
    CONSTRAINT audit_role_is_known CHECK (role IN ('viewer', 'operator', 'worker', 'agent', 'admin'))
) STRICT;
CREATE INDEX audit_of_project ON audit (project_id, audit_id);
CREATE INDEX audit_by_time ON audit (at);
