-- Changes that the database refuses from every caller: deleting a run that has not ended, changing events or the audit
-- log, and transitions that a lifecycle does not have. Changes of runs are in run_by_hand.sql.

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
    RAISE EXCEPTION 'events are append-only' USING ERRCODE = 'TM008',
        HINT = 'Events are removed with their run when it is pruned.';
END
$$;

-- Deletes events of removed runs from the tables behind the view; their triggers refuse all other changes.
CREATE OR REPLACE FUNCTION {ops}.change_event()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        RAISE EXCEPTION 'events are append-only' USING ERRCODE = 'TM008';
    END IF;
    -- A row that is two events goes with the second of them.
    DELETE FROM {ops}.run_steps WHERE run_id = OLD.run_id AND seq = OLD.seq;
    DELETE FROM {ops}.run_log WHERE run_id = OLD.run_id AND seq = OLD.seq;
    RETURN OLD;
END
$$;

CREATE OR REPLACE TRIGGER run_event_is_kept INSTEAD OF UPDATE OR DELETE ON {ops}.run_events
    FOR EACH ROW EXECUTE FUNCTION {ops}.change_event();

CREATE OR REPLACE TRIGGER run_log_is_kept BEFORE UPDATE OR DELETE ON {ops}.run_log
    FOR EACH ROW EXECUTE FUNCTION {ops}.refuse_event_change();

CREATE OR REPLACE TRIGGER run_log_stays BEFORE TRUNCATE ON {ops}.run_log
    FOR EACH STATEMENT EXECUTE FUNCTION {ops}.refuse_event_change();

CREATE OR REPLACE TRIGGER run_step_is_kept BEFORE UPDATE OR DELETE ON {ops}.run_steps
    FOR EACH ROW EXECUTE FUNCTION {ops}.refuse_event_change();

CREATE OR REPLACE TRIGGER run_steps_stay BEFORE TRUNCATE ON {ops}.run_steps
    FOR EACH STATEMENT EXECUTE FUNCTION {ops}.refuse_event_change();

-- Transitions of syncs. The WHEN clauses are short, because they are prepared again for every page; a state changes
-- only a few times in the life of a partition.

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

-- Audit entries never change; sealing sets their seal number once. Retention empties whole seals, oldest first.

CREATE OR REPLACE FUNCTION {ops}.refuse_audit_change()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'recorded entries cannot change' USING ERRCODE = 'TM008';
END
$$;

CREATE OR REPLACE TRIGGER audit_change BEFORE UPDATE ON {ops}.audit
    FOR EACH ROW WHEN (OLD.seal_no IS NOT NULL OR NEW.seal_no IS NULL
        OR (OLD.audit_id, OLD.at, OLD.call_id, OLD.who, OLD.token_id, OLD.role, OLD.action, OLD.subject,
            OLD.project_id, OLD.outcome, OLD.detail, OLD.source)
           IS DISTINCT FROM (NEW.audit_id, NEW.at, NEW.call_id, NEW.who, NEW.token_id, NEW.role, NEW.action,
            NEW.subject, NEW.project_id, NEW.outcome, NEW.detail, NEW.source))
    EXECUTE FUNCTION {ops}.refuse_audit_change();

CREATE OR REPLACE FUNCTION {ops}.refuse_audit_delete()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT FROM {ops}.audit_seals s
                                     WHERE s.seal_no = OLD.seal_no AND s.pruned_at IS NOT NULL) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'recorded entries cannot be removed' USING ERRCODE = 'TM008',
        HINT = 'Retention removes the entries of a seal, the oldest seal first.';
END
$$;

CREATE OR REPLACE TRIGGER audit_delete BEFORE DELETE ON {ops}.audit
    FOR EACH ROW EXECUTE FUNCTION {ops}.refuse_audit_delete();

CREATE OR REPLACE TRIGGER audit_truncate BEFORE TRUNCATE ON {ops}.audit
    FOR EACH STATEMENT EXECUTE FUNCTION {ops}.refuse_audit_delete();

CREATE OR REPLACE FUNCTION {ops}.check_seal_change()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.pruned_at IS NULL AND NEW.pruned_at IS NOT NULL AND NEW.entries = '[]'
       AND (OLD.seal_no, OLD.sealed_at, OLD.previous, OLD.hash, OLD.newest_at)
           IS NOT DISTINCT FROM (NEW.seal_no, NEW.sealed_at, NEW.previous, NEW.hash, NEW.newest_at)
       AND NOT EXISTS (SELECT FROM {ops}.audit_seals s WHERE s.seal_no < OLD.seal_no AND s.pruned_at IS NULL) THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' AND OLD.pruned_at IS NOT NULL
       AND EXISTS (SELECT FROM {ops}.audit_seals s WHERE s.seal_no > OLD.seal_no AND s.pruned_at IS NOT NULL) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'seals of the audit log cannot change' USING ERRCODE = 'TM008',
        HINT = 'Retention empties the oldest seal and keeps the last emptied one as the anchor.';
END
$$;

CREATE OR REPLACE TRIGGER seal_change BEFORE UPDATE OR DELETE ON {ops}.audit_seals
    FOR EACH ROW EXECUTE FUNCTION {ops}.check_seal_change();

CREATE OR REPLACE TRIGGER seal_truncate BEFORE TRUNCATE ON {ops}.audit_seals
    FOR EACH STATEMENT EXECUTE FUNCTION {ops}.check_seal_change();

-- Transitions of jobs, and the events that record them.

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

-- An ended job keeps its outcome. Only `stopping` and the columns of a cancel request may still change.
CREATE OR REPLACE FUNCTION {ops}.check_job_end()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'job % has ended and cannot change', OLD.job_id USING ERRCODE = 'TM008';
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
            -- A plain SQL statement may leave updated_at unchanged.
            CASE WHEN NEW.updated_at = OLD.updated_at THEN clock_timestamp() ELSE NEW.updated_at END);
    IF NEW.version = OLD.version THEN
        -- A plain SQL statement made this change: the controller raises the version with each of its own, and must read
        -- this one.
        INSERT INTO {ops}.job_changes AS c (subject, version) VALUES (NEW.job_id, 1)
        ON CONFLICT (subject) DO UPDATE SET version = c.version + 1;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER job_changed AFTER UPDATE ON {ops}.jobs
    FOR EACH ROW WHEN (OLD.code <> NEW.code) EXECUTE FUNCTION {ops}.record_job_change();

-- Events of a job never change.
CREATE OR REPLACE FUNCTION {ops}.check_job_record()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'recorded entries cannot change' USING ERRCODE = 'TM008';
END
$$;

CREATE OR REPLACE TRIGGER job_record BEFORE UPDATE ON {ops}.job_events
    FOR EACH ROW EXECUTE FUNCTION {ops}.check_job_record();
