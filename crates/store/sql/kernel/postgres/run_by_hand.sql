-- The guard of every change to a run. The verbs set all columns of a transition themselves and raise last_seq with it;
-- one expression lets them pass. Plain SQL statements may change a run too: the guard refuses impossible changes, fills
-- in missing columns and records the event, so that no run is left inconsistent.
--
-- The triggers have no condition, and the table has no checks. PostgreSQL reads and prepares conditions and checks
-- again for every statement, which cost more than the rest of a step, whereas a function keeps its plan (ADR 19).

-- When the sweeper has to examine a run.
CREATE FUNCTION {ops}.attention_at(p_run {ops}.runs)
RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN p_run.finished_at IS NOT NULL THEN NULL
                WHEN p_run.gate IS NULL THEN least(p_run.lease_until, p_run.deadline_at, p_run.cancel_deadline_at)
                WHEN p_run.gate = 'time' THEN least(p_run.available_at, p_run.expires_at)
                ELSE p_run.expires_at END;
END
$$;

-- Refuses a run whose columns contradict each other. The fast paths of the guards below check the same.
CREATE FUNCTION {ops}.check_consistent(p_run {ops}.runs)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (CASE WHEN p_run.gate IS NOT NULL THEN p_run.status = 'queued' AND p_run.finished_at IS NULL
                WHEN p_run.finished_at IS NULL
                THEN p_run.status = ANY ('{claimed,running}') AND p_run.claimed_by IS NOT NULL
                ELSE p_run.status = ANY ('{success,failed,cancelled}') END) IS NOT TRUE THEN
        RAISE EXCEPTION 'run % cannot be % with these columns', p_run.run_id, p_run.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'run_is_whole',
                  HINT = 'A queued run needs a gate, a held run claimed_by, and only an ended run has finished_at.';
    END IF;
END
$$;

-- Refuses values that Rust cannot read, texts that are too long, and short texts with control characters. Checks only
-- the columns that a statement changes: a row that was inserted without the triggers can still be swept, cancelled and
-- ended.
CREATE FUNCTION {ops}.check_readable(p_old {ops}.runs, p_new {ops}.runs)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_bad     record;
    v_problem text;
BEGIN
    SELECT t.name, t.becomes INTO v_bad
      FROM (VALUES ('ready_at', p_old.ready_at, p_new.ready_at),
                   ('available_at', p_old.available_at, p_new.available_at),
                   ('expires_at', p_old.expires_at, p_new.expires_at),
                   ('lease_until', p_old.lease_until, p_new.lease_until),
                   ('deadline_at', p_old.deadline_at, p_new.deadline_at),
                   ('cancel_requested_at', p_old.cancel_requested_at, p_new.cancel_requested_at),
                   ('cancel_deadline_at', p_old.cancel_deadline_at, p_new.cancel_deadline_at),
                   ('stalled_at', p_old.stalled_at, p_new.stalled_at),
                   ('queued_at', p_old.queued_at, p_new.queued_at),
                   ('started_at', p_old.started_at, p_new.started_at),
                   ('finished_at', p_old.finished_at, p_new.finished_at),
                   ('created_at', p_old.created_at, p_new.created_at),
                   ('updated_at', p_old.updated_at, p_new.updated_at)) t (name, was, becomes)
     WHERE t.becomes IS DISTINCT FROM t.was AND NOT {ops}.is_readable_time(t.becomes) LIMIT 1;
    IF FOUND THEN
        PERFORM {ops}.refuse_time(v_bad.name, v_bad.becomes);
    END IF;
    SELECT t.name, octet_length(t.becomes) AS size INTO v_bad
      FROM (VALUES ('git_sha', p_old.git_sha, p_new.git_sha), ('git_ref', p_old.git_ref, p_new.git_ref),
                   ('idempotency_key', p_old.idempotency_key, p_new.idempotency_key),
                   ('concurrency_key', p_old.concurrency_key, p_new.concurrency_key),
                   ('claimed_by', p_old.claimed_by, p_new.claimed_by),
                   ('claim_request', p_old.claim_request, p_new.claim_request),
                   ('cancel_requested_by', p_old.cancel_requested_by, p_new.cancel_requested_by),
                   ('cancel_reason', p_old.cancel_reason, p_new.cancel_reason),
                   ('end_cause', p_old.end_cause, p_new.end_cause),
                   ('retry_of', p_old.retry_of, p_new.retry_of)) t (name, was, becomes)
     WHERE t.becomes IS DISTINCT FROM t.was AND octet_length(t.becomes) > {key_max} LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% has % bytes; at most % are allowed', v_bad.name, v_bad.size, {key_max}
            USING ERRCODE = 'TM007';
    END IF;
    SELECT t.name INTO v_bad
      FROM (VALUES ('git_sha', p_old.git_sha, p_new.git_sha), ('git_ref', p_old.git_ref, p_new.git_ref),
                   ('idempotency_key', p_old.idempotency_key, p_new.idempotency_key),
                   ('concurrency_key', p_old.concurrency_key, p_new.concurrency_key),
                   ('claimed_by', p_old.claimed_by, p_new.claimed_by),
                   ('cancel_requested_by', p_old.cancel_requested_by, p_new.cancel_requested_by))
           t (name, was, becomes)
     WHERE t.becomes IS DISTINCT FROM t.was AND t.becomes ~ {control} LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% must not contain control characters', v_bad.name USING ERRCODE = 'TM006';
    ELSIF p_new.end_cause IS DISTINCT FROM p_old.end_cause AND p_new.end_cause NOT IN ({end_causes}) THEN
        RAISE EXCEPTION '`%` is not a known end cause', p_new.end_cause USING ERRCODE = 'TM006',
            HINT = 'Leave end_cause out: it becomes `statement`.';
    END IF;
    IF p_new.kind IS DISTINCT FROM p_old.kind THEN
        PERFORM {ops}.check_kind(p_new.kind);
    END IF;
    -- Counters that the verbs raise must have room to grow: an overflow would fail every claim.
    SELECT t.name, t.becomes INTO v_bad
      FROM (VALUES ('epoch', p_old.epoch, p_new.epoch), ('attempt', p_old.attempt, p_new.attempt),
                   ('failures', p_old.failures, p_new.failures), ('losses', p_old.losses, p_new.losses),
                   ('max_attempts', p_old.max_attempts, p_new.max_attempts),
                   ('max_losses', p_old.max_losses, p_new.max_losses),
                   ('backoff_secs', p_old.backoff_secs, p_new.backoff_secs),
                   ('timeout_secs', p_old.timeout_secs, p_new.timeout_secs),
                   ('lease_secs', p_old.lease_secs, p_new.lease_secs),
                   ('last_seq', p_old.last_seq, p_new.last_seq)) t (name, was, becomes)
     WHERE t.becomes IS DISTINCT FROM t.was AND t.becomes NOT BETWEEN 0 AND 1000000000 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% is %; use a number between 0 and 1000000000', v_bad.name, v_bad.becomes
            USING ERRCODE = 'TM006';
    ELSIF p_new.priority IS DISTINCT FROM p_old.priority AND abs(p_new.priority::bigint) > {priority_max} THEN
        RAISE EXCEPTION 'priority must be between -% and %', {priority_max}, {priority_max} USING ERRCODE = 'TM006';
    END IF;
    -- A document that was unreadable before may be merged with others, and kept as the input of a successor.
    IF p_new.metadata IS DISTINCT FROM p_old.metadata
       AND {ops}.json_problem(p_old.metadata, p_old.metadata::text) IS NULL THEN
        PERFORM {ops}.check_document('metadata', p_new.metadata, {metadata_max});
    END IF;
    IF p_new.input IS DISTINCT FROM p_old.input AND p_new.input IS DISTINCT FROM p_old.metadata THEN
        PERFORM {ops}.check_document('input', p_new.input, {metadata_max});
    END IF;
    IF p_new.request IS DISTINCT FROM p_old.request THEN
        PERFORM {ops}.check_document('request', p_new.request, 2 * {metadata_max});
    END IF;
END
$$;

-- Keeps gates and concurrency keys consistent when a statement changes either. The verbs set the head of a key before
-- they open its gate, so that this holds for them too.
CREATE FUNCTION {ops}.change_gate(p_old {ops}.runs, p_new {ops}.runs)
RETURNS {ops}.runs LANGUAGE plpgsql AS $$
DECLARE
    v_head text;
BEGIN
    IF p_new.concurrency_key IS DISTINCT FROM p_old.concurrency_key THEN
        IF p_old.gate IS NULL THEN
            RAISE EXCEPTION 'run % is %; the concurrency key of a run cannot change while a worker has it',
                p_old.run_id, p_old.status USING ERRCODE = 'TM008';
        ELSIF p_old.lane <> 'ops' THEN
            RAISE EXCEPTION 'run % is a %; its concurrency key cannot change', p_old.run_id, p_old.lane
                USING ERRCODE = 'TM008';
        END IF;
        IF p_old.concurrency_key IS NOT NULL THEN
            PERFORM {ops}.pass_key(p_old.project_id, p_old.concurrency_key, p_old.run_id);
        END IF;
        IF p_new.gate <> 'time' THEN
            p_new.gate := 'open';
        END IF;
        IF p_new.gate = 'open' AND p_new.concurrency_key IS NOT NULL THEN
            p_new.gate := {ops}.enter_key(p_new.run_id, p_new.project_id, p_new.concurrency_key, p_new.priority,
                                          p_new.ready_at, true);
        END IF;
    ELSIF p_new.gate IS NOT NULL AND p_new.concurrency_key IS NOT NULL AND p_old.gate IS DISTINCT FROM p_new.gate THEN
        SELECT k.head_run_id INTO v_head FROM {ops}.concurrency_keys k
         WHERE k.project_id = p_new.project_id AND k.concurrency_key = p_new.concurrency_key;
        IF p_new.gate = 'open' AND v_head IS DISTINCT FROM p_new.run_id THEN
            RAISE EXCEPTION 'run % waits for concurrency key `%`, which run % has', p_new.run_id,
                p_new.concurrency_key, coalesce(v_head, '(none)') USING ERRCODE = 'TM008',
                HINT = 'A gate opens by itself when the key is free.';
        ELSIF p_new.gate = 'key' AND v_head = p_new.run_id THEN
            RAISE EXCEPTION 'run % has concurrency key `%`, and cannot wait for it', p_new.run_id,
                p_new.concurrency_key USING ERRCODE = 'TM008';
        END IF;
    END IF;
    RETURN p_new;
END
$$;

-- Fills in the columns that a plain SQL statement left out when it changed the status of a run, and records the event.
CREATE FUNCTION {ops}.complete_step(p_old {ops}.runs, p_new {ops}.runs)
RETURNS {ops}.runs LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    IF p_new.gate IS NULL AND p_new.end_cause IS NOT NULL AND p_new.finished_at IS NOT NULL THEN
        -- A complete end: its author has waited for the holder of the run where necessary.
        v_now := CASE WHEN p_new.updated_at = p_old.updated_at THEN p_new.finished_at ELSE p_new.updated_at END;
    ELSE
        IF p_new.status <> 'queued' THEN
            p_new.gate := NULL;
        END IF;
        IF p_new.status IN ('claimed', 'running') AND p_new.lease_until IS NULL THEN
            p_new.epoch := greatest(p_new.epoch, 1);
            p_new.started_at := coalesce(p_new.started_at, v_now);
            -- A plain SQL statement promises no heartbeats; the process of a registered worker sends them.
            IF p_new.worker_id IS NOT NULL THEN
                p_new.lease_secs := coalesce(p_new.lease_secs, {lease_secs});
            END IF;
            p_new.lease_until := v_now + make_interval(secs => {lease_secs});
        END IF;
        IF p_new.status IN ({run_terminal}) THEN
            -- This takes the lease away: wait for transactions that lease_guard protects.
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
        PERFORM {ops}.record_end(p_new);
        IF p_new.concurrency_key IS NOT NULL THEN
            PERFORM {ops}.pass_key(p_new.project_id, p_new.concurrency_key, p_new.run_id);
        END IF;
    END IF;
    IF p_new.lane = 'graph' AND p_new.end_cause = 'statement' THEN
        -- The controller ends the jobs of the graph when it reads this change.
        INSERT INTO {ops}.job_changes AS c (subject, version) VALUES (p_new.run_id, 1)
        ON CONFLICT (subject) DO UPDATE SET version = c.version + 1;
    END IF;
    RETURN p_new;
END
$$;

-- Checks and completes a change that is not obviously a step of a verb.
CREATE FUNCTION {ops}.step_by_hand(p_old {ops}.runs, p_new {ops}.runs)
RETURNS {ops}.runs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_at timestamptz;
BEGIN
    IF p_old.status IN ({run_terminal}) AND p_old.last_seq = 0 THEN
        -- An ended run from a plain INSERT gets the number of its first event, and no other change.
        p_old.last_seq := 1;
        RETURN p_old;
    ELSIF p_old.status IN ({run_terminal}) THEN
        RAISE EXCEPTION 'run % has ended as %; an ended run cannot change', p_old.run_id, p_old.status
            USING ERRCODE = 'TM008', HINT = 'Queue a retry with ops.retry_run.';
    ELSIF p_new.last_seq < p_old.last_seq THEN
        RAISE EXCEPTION 'run % has % events; last_seq cannot decrease', p_old.run_id, p_old.last_seq
            USING ERRCODE = 'TM008';
    ELSIF p_new.status <> p_old.status AND (p_old.status, p_new.status) NOT IN ({run_pairs}) THEN
        RAISE EXCEPTION 'run % is %, and cannot become %', p_old.run_id, p_old.status, p_new.status
            USING ERRCODE = 'TM008';
    END IF;
    PERFORM {ops}.check_readable(p_old, p_new);
    IF p_new.concurrency_key IS DISTINCT FROM p_old.concurrency_key OR p_new.gate IS DISTINCT FROM p_old.gate THEN
        p_new := {ops}.change_gate(p_old, p_new);
    END IF;
    IF p_new.last_seq > p_old.last_seq THEN
        -- A step of a verb after all: it has recorded its event.
        NULL;
    ELSIF p_new.status <> p_old.status THEN
        p_new := {ops}.complete_step(p_old, p_new);
    ELSE
        -- attention_at may have to change although the status did not. A longer lease is left to the sweeper, as the
        -- verbs do.
        v_at := {ops}.attention_at(p_new);
        IF p_new.gate IS NOT NULL OR v_at IS NULL OR p_new.attention_at IS NULL OR v_at < p_new.attention_at THEN
            p_new.attention_at := v_at;
        END IF;
    END IF;
    PERFORM {ops}.check_consistent(p_new);
    RETURN p_new;
END
$$;

-- Operators are written with their schema: setting search_path would cost more than the guard itself.
CREATE OR REPLACE FUNCTION {ops}.guard_step()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.last_seq OPERATOR(pg_catalog.>) OLD.last_seq AND OLD.finished_at IS NULL
       AND (NEW.status OPERATOR(pg_catalog.=) OLD.status
            OR (OLD.gate IS NULL) OPERATOR(pg_catalog.<>) (NEW.status OPERATOR(pg_catalog.=) 'claimed'))
       AND (CASE WHEN NEW.gate IS NOT NULL THEN NEW.status OPERATOR(pg_catalog.=) 'queued' AND NEW.finished_at IS NULL
                 WHEN NEW.finished_at IS NULL
                 THEN NEW.status OPERATOR(pg_catalog.=) ANY ('{claimed,running}') AND NEW.claimed_by IS NOT NULL
                 ELSE NEW.status OPERATOR(pg_catalog.=) ANY ('{success,failed,cancelled}') END)
       AND greatest(NEW.ready_at, NEW.available_at, NEW.expires_at, NEW.lease_until, NEW.deadline_at,
                      NEW.cancel_requested_at, NEW.cancel_deadline_at, NEW.started_at, NEW.finished_at, NEW.updated_at)
           OPERATOR(pg_catalog.<) {time_max}
       AND least(NEW.ready_at, NEW.available_at, NEW.expires_at, NEW.lease_until, NEW.deadline_at,
                      NEW.cancel_requested_at, NEW.cancel_deadline_at, NEW.started_at, NEW.finished_at, NEW.updated_at)
           OPERATOR(pg_catalog.>) {time_min} THEN
        RETURN NEW;
    END IF;
    RETURN {ops}.step_by_hand(OLD, NEW);
END
$$;

CREATE OR REPLACE TRIGGER run_step BEFORE UPDATE ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.guard_step();

-- Refuses an id that is not one of a run.
CREATE FUNCTION {ops}.check_run_id(p_run_id text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_run_id !~ '^run-[a-z0-9-]{1,60}$' THEN
        RAISE EXCEPTION 'invalid run id `%`', left(p_run_id, 100)
            USING ERRCODE = 'check_violation', CONSTRAINT = 'run_id_is_a_run_id',
                  HINT = 'Use run- and up to 60 lower-case letters, digits and dashes, or let ops.queue_run create it.';
    END IF;
END
$$;

-- Completes a run of a plain INSERT. record_by_hand enters its concurrency key after the row exists: an INSERT with a
-- conflict must leave nothing behind.
CREATE FUNCTION {ops}.insert_by_hand(p_new {ops}.runs)
RETURNS {ops}.runs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {ops}.check_run_id(p_new.run_id);
    PERFORM {ops}.check_readable(NULL, p_new);
    IF p_new.last_seq = 0 THEN
        IF p_new.gate = 'open' AND p_new.available_at > clock_timestamp() THEN
            p_new.gate := 'time';
        END IF;
        p_new.attention_at := {ops}.attention_at(p_new);
        IF p_new.label_set_id IS NULL THEN
            IF NOT EXISTS (SELECT FROM {ops}.environments e
                            WHERE e.env_id = p_new.env_id AND e.project_id = p_new.project_id) THEN
                RAISE EXCEPTION 'project % has no environment %', p_new.project_id, p_new.env_id
                    USING ERRCODE = 'TM002';
            END IF;
            INSERT INTO {ops}.label_sets (project_id, labels) VALUES (p_new.project_id, '{}') ON CONFLICT DO NOTHING;
            SELECT s.label_set_id INTO p_new.label_set_id FROM {ops}.label_sets s
             WHERE s.project_id = p_new.project_id AND s.labels = '{}';
        END IF;
    END IF;
    PERFORM {ops}.check_consistent(p_new);
    RETURN p_new;
END
$$;

CREATE OR REPLACE FUNCTION {ops}.guard_insert()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.last_seq OPERATOR(pg_catalog.=) 1 AND NEW.gate IS NOT NULL AND NEW.finished_at IS NULL
       AND NEW.status OPERATOR(pg_catalog.=) 'queued'
       -- The rule of check_run_id, without a regular expression, which would cost several times as much.
       AND pg_catalog.octet_length(NEW.run_id) OPERATOR(pg_catalog.<=) 64
       AND pg_catalog.starts_with(NEW.run_id, 'run-')
       AND pg_catalog.ltrim(NEW.run_id, '0123456789abcdef-ghijklmnopqrstuvwxyz') OPERATOR(pg_catalog.=) ''
       AND greatest(NEW.ready_at, NEW.available_at, NEW.expires_at, NEW.queued_at, NEW.created_at, NEW.updated_at)
           OPERATOR(pg_catalog.<) {time_max}
       AND least(NEW.ready_at, NEW.available_at, NEW.expires_at, NEW.queued_at, NEW.created_at, NEW.updated_at)
           OPERATOR(pg_catalog.>) {time_min} THEN
        RETURN NEW;
    END IF;
    RETURN {ops}.insert_by_hand(NEW);
END
$$;

CREATE OR REPLACE TRIGGER run_by_hand BEFORE INSERT ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.guard_insert();

-- The id, project, environment and creation time of a run never change: its events and the tables of lists refer to
-- them.
CREATE OR REPLACE FUNCTION {ops}.refuse_run_move()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (NEW.run_id, NEW.project_id, NEW.env_id) IS DISTINCT FROM (OLD.run_id, OLD.project_id, OLD.env_id) THEN
        RAISE EXCEPTION 'run % cannot change its id, project or environment', OLD.run_id
            USING ERRCODE = 'TM008', HINT = 'Queue another run there, and cancel this one.';
    ELSIF NEW.created_at IS DISTINCT FROM OLD.created_at THEN
        RAISE EXCEPTION 'run % cannot change created_at', OLD.run_id
            USING ERRCODE = 'TM008', HINT = 'Only an INSERT can choose created_at.';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER run_moves BEFORE UPDATE OF run_id, project_id, env_id, created_at ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.refuse_run_move();
