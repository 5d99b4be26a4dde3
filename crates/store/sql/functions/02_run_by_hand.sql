-- A plain SQL statement may change a run too: fill in what it left out, so that nothing is left half-finished.
-- Our own verbs set all of this themselves, and never enter these functions.

CREATE OR REPLACE FUNCTION {ops}.complete_run_change()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
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

CREATE OR REPLACE TRIGGER run_c_by_hand BEFORE UPDATE ON {ops}.runs
    FOR EACH ROW WHEN (OLD.status <> NEW.status AND (
        NEW.gate IS NOT NULL
        OR (NEW.status IN ('claimed', 'running') AND NEW.lease_until IS NULL)
        OR (NEW.status IN ({run_terminal}) AND (NEW.end_cause IS NULL OR NEW.finished_at IS NULL))))
    EXECUTE FUNCTION {ops}.complete_run_change();

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
