-- Notes the end of a run that people may have to be told of, in the commit that ends it: a failure, a claim that went
-- stale, and a success that may make good what was told before. What is told is decided elsewhere. A sync tells of its
-- own runs.

CREATE OR REPLACE FUNCTION {ops}.note_run_to_tell()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {ops}.run_notices (run_id) VALUES (NEW.run_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER run_notice AFTER UPDATE ON {ops}.runs
    FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL AND NEW.lane <> 'sync'
        AND (NEW.status = 'failed' OR NEW.end_cause = 'stale'
             OR (NEW.status = 'success' AND (NEW.retry_of IS NOT NULL OR NEW.metadata ? 'schedule'))))
    EXECUTE FUNCTION {ops}.note_run_to_tell();
