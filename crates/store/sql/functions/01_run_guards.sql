-- What the database refuses, whoever asks: deleting a run that lives, and changing the record. What it refuses of a
-- change to a run is in run_by_hand.

CREATE OR REPLACE FUNCTION {ops}.refuse_run_delete()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'run % is %, and only a run that has ended can be deleted', OLD.run_id, OLD.status
        USING ERRCODE = 'TM008';
END
$$;

CREATE OR REPLACE TRIGGER run_d_live BEFORE DELETE ON {ops}.runs
    FOR EACH ROW WHEN (OLD.status NOT IN ({run_terminal}))
    EXECUTE FUNCTION {ops}.refuse_run_delete();

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
