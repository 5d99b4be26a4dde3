-- Every change to a run passes one guard. Our own verbs set all of a step themselves, raise the number of events with
-- it, and are let through by one expression. A plain SQL statement may change a run too: what cannot be is refused,
-- what it left out is filled in, and it is put on record, so that nothing is left half-finished.
--
-- A trigger without a condition, and no check of the table beside it: conditions and checks are read and prepared anew
-- for every statement, which cost more than the rest of a step's guards; a function keeps its plan (ADR 19).

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

-- Refuses a run whose columns contradict each other. The guards below ask the same of what they let through at once.
CREATE FUNCTION {ops}.check_whole(p_run {ops}.runs)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_run.run_id NOT LIKE 'run-%' THEN
        RAISE EXCEPTION '`%` is not the id of a run: it does not begin with run-', p_run.run_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'run_id_is_a_run_id';
    ELSIF (CASE WHEN p_run.gate IS NOT NULL THEN p_run.status = 'queued' AND p_run.finished_at IS NULL
                WHEN p_run.finished_at IS NULL
                THEN p_run.status = ANY ('{claimed,running}') AND p_run.claimed_by IS NOT NULL
                ELSE p_run.status = ANY ('{success,failed,cancelled}') END) IS NOT TRUE THEN
        RAISE EXCEPTION 'run % cannot be % with these columns', p_run.run_id, p_run.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'run_is_whole',
                  HINT = 'A queued run has a gate, a held one a holder, and only an ended one the time of its end.';
    END IF;
END
$$;

-- Fills in what a plain statement that changes the state of a run left out, and puts it on record.
CREATE FUNCTION {ops}.complete_step(p_old {ops}.runs, p_new {ops}.runs)
RETURNS {ops}.runs LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    IF p_new.gate IS NULL AND p_new.end_cause IS NOT NULL AND p_new.finished_at IS NOT NULL THEN
        -- An end that is written in full: whoever writes it has waited for the holder of the run, where it had to.
        v_now := CASE WHEN p_new.updated_at = p_old.updated_at THEN p_new.finished_at ELSE p_new.updated_at END;
    ELSE
        IF p_new.status <> 'queued' THEN
            p_new.gate := NULL;
        END IF;
        IF p_new.status IN ('claimed', 'running') AND p_new.lease_until IS NULL THEN
            p_new.epoch := greatest(p_new.epoch, 1);
            p_new.started_at := coalesce(p_new.started_at, v_now);
            p_new.lease_secs := {lease_secs};
            p_new.lease_until := v_now + make_interval(secs => {lease_secs});
        END IF;
        IF p_new.status IN ({run_terminal}) THEN
            -- This takes a lease away: wait for a transaction that lease_guard protects.
            PERFORM FROM {ops}.runs r WHERE r.run_id = p_old.run_id FOR UPDATE;
            p_new.finished_at := coalesce(p_new.finished_at, v_now);
            p_new.end_cause := coalesce(p_new.end_cause, 'statement');
            IF p_new.metadata IS DISTINCT FROM p_old.metadata THEN
                p_new.input := coalesce(p_old.input, p_old.metadata);
            END IF;
        END IF;
        IF p_new.updated_at = p_old.updated_at THEN
            p_new.updated_at := v_now;
        END IF;
        v_now := p_new.updated_at;
    END IF;
    p_new.attention_at := {ops}.attention_at(p_new);
    p_new.last_seq := p_old.last_seq + 1;
    PERFORM {ops}.record_step(p_new.run_id, p_new.last_seq, p_old.status, p_new.status,
        CASE WHEN p_new.status = 'claimed' THEN p_new.claimed_by END, p_new.end_cause, v_now);
    IF p_new.finished_at IS NOT NULL THEN
        PERFORM {ops}.note_end(p_new);
        IF p_new.concurrency_key IS NOT NULL THEN
            PERFORM {ops}.pass_key(p_new.project_id, p_new.concurrency_key, p_new.run_id);
        END IF;
    END IF;
    IF p_new.lane = 'graph' AND p_new.end_cause = 'statement' THEN
        -- Its jobs go with it, as soon as the controller looks.
        INSERT INTO {ops}.job_changes AS c (subject, version) VALUES (p_new.run_id, 1)
        ON CONFLICT (subject) DO UPDATE SET version = c.version + 1;
    END IF;
    RETURN p_new;
END
$$;

-- What becomes of a change that is not, at first sight, a verb's own step.
CREATE FUNCTION {ops}.step_by_hand(p_old {ops}.runs, p_new {ops}.runs)
RETURNS {ops}.runs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_at timestamptz;
BEGIN
    IF p_old.status IN ({run_terminal}) AND p_old.last_seq = 0 THEN
        -- An ended run that a plain INSERT brought: it gets the number of its first event, and nothing else.
        p_old.last_seq := 1;
        RETURN p_old;
    ELSIF p_old.status IN ({run_terminal}) THEN
        RAISE EXCEPTION 'run % has ended as %, and what has ended does not change', p_old.run_id, p_old.status
            USING ERRCODE = 'TM008', HINT = 'A second try is a run of its own: ops.retry_run.';
    ELSIF p_new.last_seq < p_old.last_seq THEN
        RAISE EXCEPTION 'run % has % events, and none of them goes away', p_old.run_id, p_old.last_seq
            USING ERRCODE = 'TM008';
    ELSIF p_new.status <> p_old.status AND (p_old.status, p_new.status) NOT IN ({run_pairs}) THEN
        RAISE EXCEPTION 'run % is %, and cannot become %', p_old.run_id, p_old.status, p_new.status
            USING ERRCODE = 'TM008';
    ELSIF p_new.last_seq > p_old.last_seq THEN
        -- A verb's own step after all, and on record.
        NULL;
    ELSIF p_new.status <> p_old.status THEN
        p_new := {ops}.complete_step(p_old, p_new);
    ELSE
        -- When the run has to be looked at may have changed without its state. A lease that only grew longer is left
        -- to the sweeper, as the verbs do.
        v_at := {ops}.attention_at(p_new);
        IF p_new.gate IS NOT NULL OR v_at IS NULL OR p_new.attention_at IS NULL OR v_at < p_new.attention_at THEN
            p_new.attention_at := v_at;
        END IF;
    END IF;
    PERFORM {ops}.check_whole(p_new);
    RETURN p_new;
END
$$;

-- The names of operators say where they are from: setting where names are looked up would cost more than the guard.
CREATE OR REPLACE FUNCTION {ops}.guard_step()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.last_seq OPERATOR(pg_catalog.>) OLD.last_seq AND OLD.finished_at IS NULL
       AND (NEW.status OPERATOR(pg_catalog.=) OLD.status
            OR (OLD.gate IS NULL) OPERATOR(pg_catalog.<>) (NEW.status OPERATOR(pg_catalog.=) 'claimed'))
       AND (CASE WHEN NEW.gate IS NOT NULL THEN NEW.status OPERATOR(pg_catalog.=) 'queued' AND NEW.finished_at IS NULL
                 WHEN NEW.finished_at IS NULL
                 THEN NEW.status OPERATOR(pg_catalog.=) ANY ('{claimed,running}') AND NEW.claimed_by IS NOT NULL
                 ELSE NEW.status OPERATOR(pg_catalog.=) ANY ('{success,failed,cancelled}') END) THEN
        RETURN NEW;
    END IF;
    RETURN {ops}.step_by_hand(OLD, NEW);
END
$$;

CREATE OR REPLACE TRIGGER run_step BEFORE UPDATE ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.guard_step();

CREATE FUNCTION {ops}.insert_by_hand(p_new {ops}.runs)
RETURNS {ops}.runs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_new.last_seq = 0 THEN
        p_new.attention_at := {ops}.attention_at(p_new);
        IF p_new.shelf_id IS NULL THEN
            IF NOT EXISTS (SELECT FROM {ops}.environments e
                            WHERE e.env_id = p_new.env_id AND e.project_id = p_new.project_id) THEN
                RAISE EXCEPTION 'project % has no environment %', p_new.project_id, p_new.env_id
                    USING ERRCODE = 'TM002';
            END IF;
            INSERT INTO {ops}.shelves (project_id, labels) VALUES (p_new.project_id, '{}') ON CONFLICT DO NOTHING;
            SELECT s.shelf_id INTO p_new.shelf_id FROM {ops}.shelves s
             WHERE s.project_id = p_new.project_id AND s.labels = '{}';
        END IF;
    END IF;
    PERFORM {ops}.check_whole(p_new);
    RETURN p_new;
END
$$;

CREATE OR REPLACE FUNCTION {ops}.guard_insert()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.last_seq OPERATOR(pg_catalog.=) 1 AND NEW.gate IS NOT NULL AND NEW.finished_at IS NULL
       AND NEW.status OPERATOR(pg_catalog.=) 'queued' AND NEW.run_id OPERATOR(pg_catalog.~~) 'run-%' THEN
        RETURN NEW;
    END IF;
    RETURN {ops}.insert_by_hand(NEW);
END
$$;

CREATE OR REPLACE TRIGGER run_by_hand BEFORE INSERT ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.guard_insert();

-- A run stays what it is a run of: its events and the lists of an environment name it.
CREATE OR REPLACE FUNCTION {ops}.refuse_run_move()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (NEW.run_id, NEW.project_id, NEW.env_id) IS DISTINCT FROM (OLD.run_id, OLD.project_id, OLD.env_id) THEN
        RAISE EXCEPTION 'run % keeps its id, its project and its environment', OLD.run_id
            USING ERRCODE = 'TM008', HINT = 'Queue another run there, and cancel this one.';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER run_moves BEFORE UPDATE OF run_id, project_id, env_id ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.refuse_run_move();
