-- Runs that failed or were cancelled stand in a list of their own. A run that succeeds never enters these functions.
CREATE OR REPLACE FUNCTION {ops}.note_run_end()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {ops}.run_ends (status, run_id) VALUES (NEW.status, NEW.run_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION {ops}.forget_run_end()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM {ops}.run_ends WHERE status = OLD.status AND run_id = OLD.run_id;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER run_ended_badly AFTER UPDATE ON {ops}.runs
    FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL
                       AND NEW.status = ANY ('{failed,cancelled}'))
    EXECUTE FUNCTION {ops}.note_run_end();
CREATE OR REPLACE TRIGGER run_brought_ended AFTER INSERT ON {ops}.runs
    FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL AND NEW.status = ANY ('{failed,cancelled}'))
    EXECUTE FUNCTION {ops}.note_run_end();
CREATE OR REPLACE TRIGGER run_gone AFTER DELETE ON {ops}.runs
    FOR EACH ROW WHEN (OLD.status = ANY ('{failed,cancelled}'))
    EXECUTE FUNCTION {ops}.forget_run_end();
