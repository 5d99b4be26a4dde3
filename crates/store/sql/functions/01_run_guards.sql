-- What the database refuses, whoever asks: leaving a final state, an arrow that does not exist, a changed record.
-- The WHEN clauses are evaluated without entering a function, so a legal change pays nothing for them.

CREATE OR REPLACE FUNCTION {ops}.refuse_run_change()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'run % is %, and only a run that has ended can be deleted', OLD.run_id, OLD.status
            USING ERRCODE = 'TM008';
    ELSIF OLD.status IN ({run_terminal}) THEN
        RAISE EXCEPTION 'run % has ended as %, and what has ended does not change', OLD.run_id, OLD.status
            USING ERRCODE = 'TM008', HINT = 'A second try is a run of its own: ops.retry_run.';
    END IF;
    RAISE EXCEPTION 'run % is %, and cannot become %', OLD.run_id, OLD.status, NEW.status
        USING ERRCODE = 'TM008';
END
$$;

CREATE OR REPLACE TRIGGER run_a_final BEFORE UPDATE ON {ops}.runs
    FOR EACH ROW WHEN (OLD.status IN ({run_terminal}))
    EXECUTE FUNCTION {ops}.refuse_run_change();

CREATE OR REPLACE TRIGGER run_b_arrow BEFORE UPDATE ON {ops}.runs
    FOR EACH ROW WHEN (OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN ({run_pairs}))
    EXECUTE FUNCTION {ops}.refuse_run_change();

CREATE OR REPLACE TRIGGER run_d_live BEFORE DELETE ON {ops}.runs
    FOR EACH ROW WHEN (OLD.status NOT IN ({run_terminal}))
    EXECUTE FUNCTION {ops}.refuse_run_change();

CREATE OR REPLACE FUNCTION {ops}.refuse_event_change()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM {ops}.runs r WHERE r.run_id = OLD.run_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'events are only ever appended' USING ERRCODE = 'TM008',
        HINT = 'An event goes when its run is pruned.';
END
$$;

CREATE OR REPLACE TRIGGER run_event_is_kept BEFORE UPDATE OR DELETE ON {ops}.run_events
    FOR EACH ROW EXECUTE FUNCTION {ops}.refuse_event_change();

CREATE OR REPLACE TRIGGER run_events_are_kept BEFORE TRUNCATE ON {ops}.run_events
    FOR EACH STATEMENT EXECUTE FUNCTION {ops}.refuse_event_change();
