-- What the database refuses of a job, whoever asks, and the record of its changes.

CREATE OR REPLACE FUNCTION {ops}.check_job_change()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (OLD.code, NEW.code) NOT IN ({job_pairs}) THEN
        RAISE EXCEPTION 'job % is %, and cannot become %', OLD.job_id, OLD.code, NEW.code USING ERRCODE = 'TM008';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER job_change BEFORE UPDATE ON {ops}.jobs
    FOR EACH ROW WHEN (OLD.code <> NEW.code) EXECUTE FUNCTION {ops}.check_job_change();

-- What has ended stays as it ended; only its room becomes free, and only people may say that they wanted it to stop.
CREATE OR REPLACE FUNCTION {ops}.check_job_end()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'job % has ended, and does not change any more', OLD.job_id USING ERRCODE = 'TM008';
END
$$;

CREATE OR REPLACE TRIGGER job_end BEFORE UPDATE ON {ops}.jobs
    FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL AND OLD.code = NEW.code
        AND (OLD.message, OLD.exit_code, OLD.task_id, OLD.ended_at, OLD.reused_from)
            IS DISTINCT FROM (NEW.message, NEW.exit_code, NEW.task_id, NEW.ended_at, NEW.reused_from))
    EXECUTE FUNCTION {ops}.check_job_end();

CREATE OR REPLACE FUNCTION {ops}.record_job_change()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {ops}.job_events (job_id, seq, from_code, to_code, message, at)
    VALUES (NEW.job_id,
            (SELECT coalesce(max(e.seq), 0) + 1 FROM {ops}.job_events e WHERE e.job_id = NEW.job_id),
            OLD.code, NEW.code, NEW.message,
            -- A plain statement may leave the time as it is.
            CASE WHEN NEW.updated_at = OLD.updated_at THEN clock_timestamp() ELSE NEW.updated_at END);
    IF NEW.version = OLD.version THEN
        -- A plain statement: the controller, which gives each of its changes a version, has to hear of it.
        INSERT INTO {ops}.job_changes AS c (subject, version) VALUES (NEW.job_id, 1)
        ON CONFLICT (subject) DO UPDATE SET version = c.version + 1;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER job_changed AFTER UPDATE ON {ops}.jobs
    FOR EACH ROW WHEN (OLD.code <> NEW.code) EXECUTE FUNCTION {ops}.record_job_change();

-- What is on record does not change while its job is there.
CREATE OR REPLACE FUNCTION {ops}.check_job_record()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'what is on record does not change' USING ERRCODE = 'TM008';
END
$$;

CREATE OR REPLACE TRIGGER job_record BEFORE UPDATE ON {ops}.job_events
    FOR EACH ROW EXECUTE FUNCTION {ops}.check_job_record();
