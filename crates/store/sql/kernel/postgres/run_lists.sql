-- Tables beside `runs` that lists and alerts read.
--
-- Records the end of a run in the transaction that ends it: in unsuccessful_runs if it failed or was cancelled, and in
-- run_notices if an alert may follow. That is a failure, a stale claim, or a success that may resolve an earlier
-- alert. The alert loop decides what to send. Syncs raise alerts for their own runs.
--
-- The verbs and complete_step call this; the condition of a trigger would be prepared again for every step of every
-- run. It is not called for a run that succeeds without a retry or a schedule.
CREATE OR REPLACE FUNCTION {ops}.record_end(p_run {ops}.runs)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_run.status IN ('failed', 'cancelled') THEN
        INSERT INTO {ops}.unsuccessful_runs (status, created_at, run_id)
        VALUES (p_run.status, p_run.created_at, p_run.run_id) ON CONFLICT DO NOTHING;
    END IF;
    IF p_run.lane <> 'sync' AND (p_run.status = 'failed' OR p_run.end_cause = 'stale'
       OR (p_run.status = 'success' AND (p_run.retry_of IS NOT NULL OR p_run.metadata ? 'schedule'))) THEN
        INSERT INTO {ops}.run_notices (run_id) VALUES (p_run.run_id) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION {ops}.remove_unsuccessful_run()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM {ops}.unsuccessful_runs
     WHERE status = OLD.status AND created_at = OLD.created_at AND run_id = OLD.run_id;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER run_deleted AFTER DELETE ON {ops}.runs
    FOR EACH ROW WHEN (OLD.status = ANY ('{failed,cancelled}'))
    EXECUTE FUNCTION {ops}.remove_unsuccessful_run();

-- The table run_lookup: commit, branch, kind, lane and feed of a run, for lists, and its predecessor (ADR 22). Triggers
-- maintain it, so that plain SQL statements do too.

-- Inserts the rows of a run.
CREATE FUNCTION {ops}.add_lookup_rows(p_run {ops}.runs)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {ops}.run_lookup (kind, value, created_at, run_id)
    SELECT m.kind, m.value, p_run.created_at, p_run.run_id
      FROM (VALUES ('lane', CASE WHEN p_run.lane <> 'ops' THEN p_run.lane END),
                   ('feed', CASE WHEN p_run.lane = 'sync' THEN p_run.concurrency_key END),
                   ('kind', nullif(p_run.kind, '')), ('sha', p_run.git_sha), ('ref', p_run.git_ref),
                   ('retry_of', p_run.retry_of)) m (kind, value)
     WHERE m.value IS NOT NULL
    ON CONFLICT (kind, value, created_at, run_id) DO NOTHING;
END
$$;

-- Searches by the whole key: one statement for all of them would be planned while the table is small, and would
-- scan it in that session from then on.
CREATE FUNCTION {ops}.remove_lookup_rows(p_run {ops}.runs)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {ops}.run_lookup
     WHERE kind = 'lane' AND value = p_run.lane AND created_at = p_run.created_at AND run_id = p_run.run_id;
    DELETE FROM {ops}.run_lookup
     WHERE kind = 'feed' AND value = p_run.concurrency_key AND created_at = p_run.created_at AND run_id = p_run.run_id;
    DELETE FROM {ops}.run_lookup
     WHERE kind = 'kind' AND value = p_run.kind AND created_at = p_run.created_at AND run_id = p_run.run_id;
    DELETE FROM {ops}.run_lookup
     WHERE kind = 'sha' AND value = p_run.git_sha AND created_at = p_run.created_at AND run_id = p_run.run_id;
    DELETE FROM {ops}.run_lookup
     WHERE kind = 'ref' AND value = p_run.git_ref AND created_at = p_run.created_at AND run_id = p_run.run_id;
    DELETE FROM {ops}.run_lookup
     WHERE kind = 'retry_of' AND value = p_run.retry_of AND created_at = p_run.created_at AND run_id = p_run.run_id;
END
$$;

-- AFTER, because an INSERT with a conflict must leave nothing behind. Without a condition, which would be prepared
-- again for every statement.
CREATE OR REPLACE FUNCTION {ops}.enter_run()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.last_seq OPERATOR(pg_catalog.=) 0 OR NEW.git_sha IS NOT NULL OR NEW.git_ref IS NOT NULL
       OR NEW.retry_of IS NOT NULL OR NEW.lane OPERATOR(pg_catalog.<>) 'ops' OR NEW.kind OPERATOR(pg_catalog.<>) '' THEN
        PERFORM {ops}.add_lookup_rows(NEW);
        IF NEW.last_seq OPERATOR(pg_catalog.=) 0 THEN
            PERFORM {ops}.record_by_hand(NEW);
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER run_queued AFTER INSERT ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.enter_run();

CREATE OR REPLACE FUNCTION {ops}.update_lookup_rows()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {ops}.remove_lookup_rows(OLD);
    IF TG_OP = 'DELETE' THEN
        -- Retention removes the rest of the run step by step.
        INSERT INTO {ops}.removed_runs (part, run_id)
        SELECT p.part, OLD.run_id FROM (VALUES ('events'), ('jobs')) p (part)
         WHERE p.part = 'events' OR OLD.lane = 'graph'
        ON CONFLICT DO NOTHING;
        RETURN NULL;
    END IF;
    PERFORM {ops}.add_lookup_rows(NEW);
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER run_lookup_changed BEFORE UPDATE OF lane, kind, concurrency_key, git_sha, git_ref, retry_of
    ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.update_lookup_rows();

CREATE OR REPLACE TRIGGER run_lookup_removed AFTER DELETE ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.update_lookup_rows();
