-- A plain SQL statement may change a run too: refuse what cannot be, fill in what it left out, and put it on record, so
-- that nothing is left half-finished. Our own verbs set all of it themselves, and never enter a function.

-- When the sweeper has to look at a run.
CREATE FUNCTION {ops}.attention_at(p_run {ops}.runs)
RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN p_run.finished_at IS NOT NULL THEN NULL
                WHEN p_run.gate IS NULL THEN least(p_run.lease_until, p_run.deadline_at, p_run.cancel_deadline_at)
                WHEN p_run.gate = 'time' THEN least(p_run.available_at, p_run.expires_at)
                ELSE p_run.expires_at END;
END
$$;

CREATE OR REPLACE FUNCTION {ops}.check_run_change()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    IF OLD.status IN ({run_terminal}) AND OLD.last_seq = 0 THEN
        -- An ended run that a plain INSERT brought: it gets the number of its first event, and nothing else.
        OLD.last_seq := 1;
        RETURN OLD;
    ELSIF OLD.status IN ({run_terminal}) THEN
        RAISE EXCEPTION 'run % has ended as %, and what has ended does not change', OLD.run_id, OLD.status
            USING ERRCODE = 'TM008', HINT = 'A second try is a run of its own: ops.retry_run.';
    ELSIF (OLD.status, NEW.status) NOT IN ({run_pairs}) THEN
        RAISE EXCEPTION 'run % is %, and cannot become %', OLD.run_id, OLD.status, NEW.status
            USING ERRCODE = 'TM008';
    ELSIF NEW.last_seq > OLD.last_seq THEN
        -- A verb's own step, complete and on record.
        RETURN NEW;
    ELSIF NEW.last_seq < OLD.last_seq THEN
        RAISE EXCEPTION 'run % has % events, and none of them goes away', OLD.run_id, OLD.last_seq
            USING ERRCODE = 'TM008';
    END IF;
    IF NEW.gate IS NULL AND NEW.end_cause IS NOT NULL AND NEW.finished_at IS NOT NULL THEN
        -- An end that is written in full: whoever writes it has waited for the holder of the run, where it had to.
        v_now := CASE WHEN NEW.updated_at = OLD.updated_at THEN NEW.finished_at ELSE NEW.updated_at END;
    ELSE
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
        v_now := NEW.updated_at;
    END IF;
    NEW.attention_at := {ops}.attention_at(NEW);
    NEW.last_seq := OLD.last_seq + 1;
    PERFORM {ops}.record_step(NEW.run_id, NEW.last_seq, OLD.status, NEW.status,
        CASE WHEN NEW.status = 'claimed' THEN NEW.claimed_by END, NEW.end_cause, v_now);
    IF NEW.finished_at IS NOT NULL THEN
        PERFORM {ops}.note_end(NEW);
    END IF;
    IF NEW.lane = 'graph' AND NEW.end_cause = 'statement' THEN
        -- Its jobs go with it, as soon as the controller looks.
        INSERT INTO {ops}.job_changes AS c (subject, version) VALUES (NEW.run_id, 1)
        ON CONFLICT (subject) DO UPDATE SET version = c.version + 1;
    END IF;
    RETURN NEW;
END
$$;

-- Whether a change of a run is none of a verb's: an ended run, fewer events than there were, or a change of state
-- without an event of its own, or one that leaves the queue other than by a claim. check_run_change has the whole list
-- of steps, made from the lifecycle. A verb that ends a claimed run writes two events, for it passes through running.
CREATE OR REPLACE FUNCTION {ops}.is_by_hand(p_was text, p_is text, p_seq_was integer, p_seq_is integer, p_gate_was text,
                                            p_finished_was timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN p_finished_was IS NOT NULL OR (p_was OPERATOR(pg_catalog.<>) p_is
        AND NOT (p_seq_is OPERATOR(pg_catalog.>) p_seq_was
                 AND (p_gate_was IS NULL) OPERATOR(pg_catalog.<>) (p_is OPERATOR(pg_catalog.=) 'claimed')))
        OR p_seq_is OPERATOR(pg_catalog.<) p_seq_was;
END
$$;

-- The clause is read and prepared anew for every statement: a call is short to read.
CREATE OR REPLACE TRIGGER run_change BEFORE UPDATE ON {ops}.runs
    FOR EACH ROW WHEN ({ops}.is_by_hand(OLD.status, NEW.status, OLD.last_seq, NEW.last_seq, OLD.gate, OLD.finished_at))
    EXECUTE FUNCTION {ops}.check_run_change();

-- A statement may change when a run has to be looked at without changing its state. A lease that only grew longer is
-- left to the sweeper, as the verbs do.
CREATE OR REPLACE FUNCTION {ops}.keep_attention()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_at timestamptz := {ops}.attention_at(NEW);
BEGIN
    IF NEW.gate IS NOT NULL OR v_at IS NULL OR NEW.attention_at IS NULL OR v_at < NEW.attention_at THEN
        NEW.attention_at := v_at;
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER run_times BEFORE UPDATE OF gate, available_at, expires_at, lease_until, deadline_at,
                                                     cancel_deadline_at ON {ops}.runs
    FOR EACH ROW WHEN (NEW.last_seq = OLD.last_seq)
    EXECUTE FUNCTION {ops}.keep_attention();

CREATE OR REPLACE FUNCTION {ops}.complete_run_insert()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.attention_at := {ops}.attention_at(NEW);
    IF NEW.shelf_id IS NOT NULL THEN
        RETURN NEW;
    END IF;
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
    FOR EACH ROW WHEN (NEW.last_seq = 0) EXECUTE FUNCTION {ops}.complete_run_insert();
