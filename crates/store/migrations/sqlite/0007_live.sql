-- Live events: every event says which transaction wrote it, so that readers can tell what has ended since they looked.
-- Differs: there is one writer at a time, so the number of the row does it; it is never given twice,
-- whatever is pruned.
-- A table without such numbers cannot get them: it is made anew. The triggers on it are made with the code.
PRAGMA legacy_alter_table = ON;

CREATE TABLE run_events_live (
    xact       INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id     TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    event_id   TEXT NOT NULL GENERATED ALWAYS AS ('evt-' || substr(run_id, 5) || '-' || seq) VIRTUAL,
    kind       TEXT NOT NULL DEFAULT 'log',
    level      TEXT NOT NULL,
    message    TEXT NOT NULL,
    payload    TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(payload)),
    event_key  TEXT,
    -- What makes an append the same as an earlier one: the key, or a digest of level, message and payload.
    same_as    TEXT,
    -- Differs: there are no users to name.
    actor      TEXT NOT NULL DEFAULT 'local',
    created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    UNIQUE (run_id, seq),
    CONSTRAINT event_kind_is_known CHECK (kind IN ('log', 'transition', 'refusal', 'request')),
    CONSTRAINT event_level_is_known CHECK (level IN ('debug', 'info', 'warn', 'error'))
) STRICT;
INSERT INTO run_events_live (run_id, seq, kind, level, message, payload, event_key, same_as, actor, created_at)
SELECT run_id, seq, kind, level, message, payload, event_key, same_as, actor, created_at
  FROM run_events
 ORDER BY run_id, seq;
DROP TABLE run_events;
ALTER TABLE run_events_live RENAME TO run_events;
CREATE INDEX run_events_same ON run_events (run_id, same_as) WHERE same_as IS NOT NULL;

PRAGMA legacy_alter_table = OFF;
