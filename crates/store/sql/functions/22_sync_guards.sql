-- What the database refuses of a sync, whoever asks: an arrow that its lifecycle does not have. The clauses are short,
-- because they are prepared anew for every page; a state changes only a few times in the life of a partition.

CREATE OR REPLACE FUNCTION {ops}.check_sync_change()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (OLD.state, NEW.state) NOT IN ({sync_pairs}) THEN
        RAISE EXCEPTION 'sync % is %, and cannot become %', OLD.run_id, OLD.state, NEW.state USING ERRCODE = 'TM008';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER sync_change BEFORE UPDATE ON {sync}.run_metadata
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION {ops}.check_sync_change();

CREATE OR REPLACE FUNCTION {ops}.check_partition_change()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (OLD.state, NEW.state) NOT IN ({partition_pairs}) THEN
        RAISE EXCEPTION '% of sync % is %, and cannot become %', OLD.partition_id, OLD.run_id, OLD.state, NEW.state
            USING ERRCODE = 'TM008';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER partition_change BEFORE UPDATE ON {sync}.partition_progress
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION {ops}.check_partition_change();

CREATE OR REPLACE FUNCTION {ops}.check_worker_run_change()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (OLD.status, NEW.status) NOT IN ({worker_run_pairs}) THEN
        RAISE EXCEPTION 'the worker run of % is %, and cannot become %', OLD.partition_id, OLD.status, NEW.status
            USING ERRCODE = 'TM008';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER worker_run_change BEFORE UPDATE ON {sync}.worker_runs
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION {ops}.check_worker_run_change();
