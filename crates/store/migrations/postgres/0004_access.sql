-- Access: tokens, the sessions of browsers, and the record of what people did.
-- No secret is here: a token and the value of a cookie are kept as their SHA-256, and are shown once, when they are
-- made.

CREATE TABLE {ops}.tokens (
    token_id     uuid PRIMARY KEY,
    name         text NOT NULL,
    hash         text COLLATE "C" NOT NULL UNIQUE,
    role         text COLLATE "C" NOT NULL,
    -- NULL: all projects.
    project_id   text COLLATE "C" REFERENCES {ops}.projects,
    created_at   timestamptz NOT NULL,
    created_by   text NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    revoked_by   text,
    -- Written at most once a minute.
    last_used_at timestamptz,
    CONSTRAINT token_role_is_known CHECK (role IN ('viewer', 'operator', 'worker', 'agent', 'admin')),
    CONSTRAINT token_hash_is_a_hash CHECK (hash ~ '^[0-9a-f]{64}$')
);

CREATE TABLE {ops}.sessions (
    hash         text COLLATE "C" PRIMARY KEY,
    -- A session is worth what its token is worth.
    token_id     uuid NOT NULL REFERENCES {ops}.tokens ON DELETE CASCADE,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    last_used_at timestamptz,
    CONSTRAINT session_hash_is_a_hash CHECK (hash ~ '^[0-9a-f]{64}$')
);
CREATE INDEX sessions_of_token ON {ops}.sessions (token_id);
CREATE INDEX sessions_by_end ON {ops}.sessions (expires_at);

-- Without foreign keys: what is on record stays on record when its project or token goes.
CREATE TABLE {ops}.audit (
    audit_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    who        text NOT NULL,
    token_id   uuid,
    role       text COLLATE "C" NOT NULL,
    action     text COLLATE "C" NOT NULL,
    subject    text COLLATE "C",
    project_id text COLLATE "C",
    detail     jsonb NOT NULL DEFAULT '{}',
    source     text,
    CONSTRAINT audit_role_is_known CHECK (role IN ('viewer', 'operator', 'worker', 'agent', 'admin'))
);
CREATE INDEX audit_of_project ON {ops}.audit (project_id, audit_id);
CREATE INDEX audit_by_time ON {ops}.audit (at);
