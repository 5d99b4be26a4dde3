-- A plain SQL statement may change a run too: refuse what cannot be, and fill in what it left out, so that nothing is
-- left half-finished. The steps that our own verbs take most set all of it themselves, and never enter a function.

CREATE OR REPLACE FUNCTION {ops}.check_run_change()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    IF OLD.status IN ({run_terminal}) THEN
        RAISE EXCEPTION 'run % has ended as %, and what has ended does not change', OLD.run_id, OLD.status
            USING ERRCODE = 'TM008', HINT = 'A second try is a run of its own: ops.retry_run.';
    ELSIF (OLD.status, NEW.status) NOT IN ({run_pairs}) THEN
        RAISE EXCEPTION 'run % is %, and cannot become %', OLD.run_id, OLD.status, NEW.status
            USING ERRCODE = 'TM008';
    ELSIF NEW.gate IS NULL AND NEW.end_cause IS NOT NULL AND NEW.finished_at IS NOT NULL THEN
        -- An end that a verb has written: it has waited for whoever holds the run, where it had to.
        RETURN NEW;
    END IF;
    IF NEW.status <> 'queued' THEN
        NEW.gate := NULL;
    END IF;
    IF NEW.status IN ('claimed', 'running') AND NEW.lease_until IS NULL THEN
        NEW.epoch := greatest(NEW.epoch, 1);
        NEW.started_at := coalesce(NEW.started_at, v_now);
        NEW.lease_secs := {lease_secs};
        NEW.lease_until := v_now + make_interval(secs => {lease_secs});
    END IF;
    IF NEW.status IN ({run_terminal}) THEN
        -- This takes a lease away: wait for a transaction that lease_guard protects.
        PERFORM FROM {ops}.runs r WHERE r.run_id = OLD.run_id FOR UPDATE;
        NEW.finished_at := coalesce(NEW.finished_at, v_now);
        NEW.end_cause := coalesce(NEW.end_cause, 'statement');
        IF NEW.metadata IS DISTINCT FROM OLD.metadata THEN
            NEW.input := coalesce(OLD.input, OLD.metadata);
        END IF;
    END IF;
    IF NEW.updated_at = OLD.updated_at THEN
        NEW.updated_at := v_now;
    END IF;
    RETURN NEW;
END
$$;

-- The clause is read and prepared anew for every statement, so it is short: an ended run, or a change of state that
-- is not one of the three complete steps of a usual life. The function has the whole list, made from the lifecycle.
CREATE OR REPLACE TRIGGER run_change BEFORE UPDATE ON {ops}.runs
    FOR EACH ROW WHEN (OLD.finished_at IS NOT NULL OR (OLD.status <> NEW.status AND NOT (
        NEW.gate IS NULL AND NEW.lease_until IS NOT NULL AND (
            (OLD.status = 'queued' AND NEW.status = 'claimed')
            OR (OLD.status = 'claimed' AND NEW.status = 'running')
            OR (OLD.status = 'running' AND NEW.finished_at IS NOT NULL AND NEW.end_cause IS NOT NULL)))))
    EXECUTE FUNCTION {ops}.check_run_change();

CREATE OR REPLACE FUNCTION {ops}.complete_run_insert()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {ops}.environments e
                    WHERE e.env_id = NEW.env_id AND e.project_id = NEW.project_id) THEN
        RAISE EXCEPTION 'project % has no environment %', NEW.project_id, NEW.env_id USING ERRCODE = 'TM002';
    END IF;
    INSERT INTO {ops}.shelves (project_id, labels) VALUES (NEW.project_id, '{}') ON CONFLICT DO NOTHING;
    SELECT s.shelf_id INTO NEW.shelf_id FROM {ops}.shelves s
     WHERE s.project_id = NEW.project_id AND s.labels = '{}';
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER run_by_hand BEFORE INSERT ON {ops}.runs
    FOR EACH ROW WHEN (NEW.shelf_id IS NULL) EXECUTE FUNCTION {ops}.complete_run_insert();
