-- How runs end is noted in the commit that ends them: runs that failed or were cancelled stand in a list of their own,
-- and so do ends that people may have to be told of: a failure, a claim that went stale, and a success that may make
-- good what was told before. What is told is decided elsewhere. A sync tells of its own runs.
--
-- The verbs call this, and so does what completes a plain statement; a trigger of its own would have its condition read
-- and prepared anew for every step of every run. A run that simply succeeds never comes here.
CREATE OR REPLACE FUNCTION {ops}.note_end(p_run {ops}.runs)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_run.status IN ('failed', 'cancelled') THEN
        INSERT INTO {ops}.run_ends (status, run_id) VALUES (p_run.status, p_run.run_id) ON CONFLICT DO NOTHING;
    END IF;
    IF p_run.lane <> 'sync' AND (p_run.status = 'failed' OR p_run.end_cause = 'stale'
       OR (p_run.status = 'success' AND (p_run.retry_of IS NOT NULL OR p_run.metadata ? 'schedule'))) THEN
        INSERT INTO {ops}.run_notices (run_id) VALUES (p_run.run_id) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION {ops}.forget_run_end()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM {ops}.run_ends WHERE status = OLD.status AND run_id = OLD.run_id;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER run_gone AFTER DELETE ON {ops}.runs
    FOR EACH ROW WHEN (OLD.status = ANY ('{failed,cancelled}'))
    EXECUTE FUNCTION {ops}.forget_run_end();

-- Earlier builds noted ends by triggers.
DROP TRIGGER IF EXISTS run_ended_badly ON {ops}.runs;
DROP TRIGGER IF EXISTS run_brought_ended ON {ops}.runs;
DROP TRIGGER IF EXISTS run_notice ON {ops}.runs;
DROP FUNCTION IF EXISTS {ops}.note_run_end();
DROP FUNCTION IF EXISTS {ops}.note_run_to_tell();
