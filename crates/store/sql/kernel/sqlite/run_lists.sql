-- Tables beside `runs` that lists and alerts read. Triggers maintain them.

-- name: run_lists_triggers
-- The table unsuccessful_runs: failed and cancelled runs, for lists.
DROP TRIGGER IF EXISTS run_unsuccessful;
CREATE TRIGGER run_unsuccessful AFTER UPDATE OF status ON runs
WHEN NEW.status IN ('failed', 'cancelled') AND OLD.status <> NEW.status
BEGIN
    INSERT INTO unsuccessful_runs (status, created_at, run_id)
    VALUES (NEW.status, NEW.created_at, NEW.run_id) ON CONFLICT DO NOTHING;
END;

DROP TRIGGER IF EXISTS run_inserted_unsuccessful;
CREATE TRIGGER run_inserted_unsuccessful AFTER INSERT ON runs
WHEN NEW.status IN ('failed', 'cancelled')
BEGIN
    INSERT INTO unsuccessful_runs (status, created_at, run_id)
    VALUES (NEW.status, NEW.created_at, NEW.run_id) ON CONFLICT DO NOTHING;
END;

DROP TRIGGER IF EXISTS run_deleted;
CREATE TRIGGER run_deleted AFTER DELETE ON runs
WHEN OLD.status IN ('failed', 'cancelled')
BEGIN
    DELETE FROM unsuccessful_runs
     WHERE status = OLD.status AND created_at = OLD.created_at AND run_id = OLD.run_id;
END;

-- The table run_lookup: commit, branch, kind, lane and feed of a run, for lists, and its predecessor (ADR 22).
DROP VIEW IF EXISTS run_lookup_rows;
CREATE VIEW run_lookup_rows (kind, value, created_at, run_id) AS
    SELECT 'lane', lane, created_at, run_id FROM runs WHERE lane <> 'ops'
    UNION ALL SELECT 'feed', concurrency_key, created_at, run_id FROM runs
               WHERE lane = 'sync' AND concurrency_key IS NOT NULL
    UNION ALL SELECT 'kind', kind, created_at, run_id FROM runs WHERE kind <> ''
    UNION ALL SELECT 'sha', git_sha, created_at, run_id FROM runs WHERE git_sha IS NOT NULL
    UNION ALL SELECT 'ref', git_ref, created_at, run_id FROM runs WHERE git_ref IS NOT NULL
    UNION ALL SELECT 'retry_of', retry_of, created_at, run_id FROM runs WHERE retry_of IS NOT NULL;

DROP TRIGGER IF EXISTS run_lookup_inserted;
CREATE TRIGGER run_lookup_inserted AFTER INSERT ON runs
WHEN NEW.git_sha IS NOT NULL OR NEW.git_ref IS NOT NULL OR NEW.lane <> 'ops' OR NEW.kind <> ''
     OR NEW.retry_of IS NOT NULL
BEGIN
    INSERT INTO run_lookup (kind, value, created_at, run_id)
    SELECT m.kind, m.value, m.created_at, m.run_id FROM run_lookup_rows m WHERE m.run_id = NEW.run_id
    ON CONFLICT (kind, value, created_at, run_id) DO NOTHING;
END;

DROP TRIGGER IF EXISTS run_lookup_changed;
CREATE TRIGGER run_lookup_changed AFTER UPDATE OF lane, kind, concurrency_key, git_sha, git_ref, retry_of ON runs
BEGIN
    DELETE FROM run_lookup
     WHERE kind = 'lane' AND value = OLD.lane AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'feed' AND value = OLD.concurrency_key AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'kind' AND value = OLD.kind AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'sha' AND value = OLD.git_sha AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'ref' AND value = OLD.git_ref AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'retry_of' AND value = OLD.retry_of AND created_at = OLD.created_at AND run_id = OLD.run_id;
    INSERT INTO run_lookup (kind, value, created_at, run_id)
    SELECT m.kind, m.value, m.created_at, m.run_id FROM run_lookup_rows m WHERE m.run_id = NEW.run_id
    ON CONFLICT (kind, value, created_at, run_id) DO NOTHING;
END;

DROP TRIGGER IF EXISTS run_lookup_removed;
CREATE TRIGGER run_lookup_removed AFTER DELETE ON runs
BEGIN
    DELETE FROM run_lookup
     WHERE kind = 'lane' AND value = OLD.lane AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'feed' AND value = OLD.concurrency_key AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'kind' AND value = OLD.kind AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'sha' AND value = OLD.git_sha AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'ref' AND value = OLD.git_ref AND created_at = OLD.created_at AND run_id = OLD.run_id;
    DELETE FROM run_lookup
     WHERE kind = 'retry_of' AND value = OLD.retry_of AND created_at = OLD.created_at AND run_id = OLD.run_id;
    -- Retention removes the rest of the run step by step.
    INSERT INTO removed_runs (part, run_id)
    SELECT 'events', OLD.run_id UNION ALL SELECT 'jobs', OLD.run_id WHERE OLD.lane = 'graph'
    ON CONFLICT DO NOTHING;
END;

-- The table run_notices: ends of runs that may raise or resolve an alert, as record_end on PostgreSQL.
DROP TRIGGER IF EXISTS run_notice;
CREATE TRIGGER run_notice AFTER UPDATE OF status ON runs
WHEN NEW.status IN ({run_terminal}) AND OLD.status NOT IN ({run_terminal}) AND NEW.lane <> 'sync'
     AND (NEW.status = 'failed' OR NEW.end_cause = 'stale'
          OR (NEW.status = 'success'
              AND (NEW.retry_of IS NOT NULL OR json_type(NEW.metadata, '$.schedule') IS NOT NULL)))
BEGIN
    INSERT INTO run_notices (run_id) VALUES (NEW.run_id) ON CONFLICT DO NOTHING;
END;
