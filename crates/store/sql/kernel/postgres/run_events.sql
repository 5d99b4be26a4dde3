-- Events of runs. A verb writes the event of its step itself. For plain SQL statements, these functions and those in
-- run_by_hand.sql write it, so that every change is recorded. The tables run_steps and run_log hold the events; the
-- view run_events shows both, and takes plain INSERTs.

-- Writes the event of one transition. The caller has raised last_seq.
CREATE FUNCTION {ops}.record_step(p_run_id text, p_seq integer, p_from text, p_to text, p_worker text, p_cause text,
                                  p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_step "char" := CASE p_from || ' ' || p_to || coalesce(' ' || p_cause, '')
                         WHEN 'queued claimed' THEN 'c' WHEN 'claimed running' THEN 'r'
                         WHEN 'running success reported' THEN 's' WHEN 'running failed reported' THEN 'f' END;
BEGIN
    IF v_step IS NOT NULL THEN
        INSERT INTO {ops}.run_steps (created_at, seq, step, run_id, detail)
        VALUES (p_now, p_seq, v_step, p_run_id, p_worker);
        RETURN;
    END IF;
    INSERT INTO {ops}.run_log (run_id, seq, kind, level, message, payload, created_at)
    VALUES (p_run_id, p_seq, 'transition',
            CASE p_to WHEN 'failed' THEN 'error' WHEN 'cancelled' THEN 'warn' ELSE 'info' END,
            CASE p_to WHEN 'claimed' THEN 'Run claimed by worker' WHEN 'running' THEN 'Run started'
                      WHEN 'success' THEN 'Run succeeded' WHEN 'failed' THEN 'Run failed' ELSE 'Run cancelled' END,
            jsonb_strip_nulls(jsonb_build_object('from', p_from, 'to', p_to, 'worker_id', p_worker, 'cause', p_cause)),
            p_now);
END
$$;

-- Records a run of a plain INSERT, and enters its concurrency key.
CREATE FUNCTION {ops}.record_by_hand(p_new {ops}.runs)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_gate text := p_new.gate;
BEGIN
    PERFORM {ops}.refuse_used_id(p_new.run_id);
    INSERT INTO {ops}.run_steps (created_at, seq, step, run_id, detail, env_id)
    VALUES (p_new.created_at, 1, 'q', p_new.run_id,
            CASE WHEN p_new.retry_of IS NULL THEN jsonb_build_object('to', p_new.status)
                 ELSE jsonb_build_object('to', p_new.status, 'retry_of', p_new.retry_of, 'attempt', p_new.attempt) END,
            p_new.env_id);
    IF p_new.concurrency_key IS NOT NULL AND p_new.finished_at IS NULL AND v_gate IS DISTINCT FROM 'time' THEN
        v_gate := {ops}.enter_key(p_new.run_id, p_new.project_id, p_new.concurrency_key, p_new.priority,
                                  p_new.ready_at, true);
        IF p_new.gate IS NULL AND v_gate = 'key' THEN
            RAISE EXCEPTION 'run % cannot be %: another run has concurrency key `%`', p_new.run_id, p_new.status,
                p_new.concurrency_key USING ERRCODE = 'TM008';
        END IF;
        v_gate := CASE WHEN p_new.gate IS NOT NULL THEN v_gate END;
    END IF;
    UPDATE {ops}.runs SET last_seq = 1, gate = v_gate WHERE run_id = p_new.run_id;
    IF p_new.status = ANY ('{failed,cancelled}') THEN
        -- The run ended before it was inserted: it is listed, without a notice.
        INSERT INTO {ops}.unsuccessful_runs (status, created_at, run_id)
        VALUES (p_new.status, p_new.created_at, p_new.run_id) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- Inserts an event of a plain SQL statement with the next number, and raises last_seq of the run.
CREATE FUNCTION {ops}.event_by_hand(p_new {ops}.run_events)
RETURNS {ops}.run_events LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_run record;
BEGIN
    p_new.kind := coalesce(p_new.kind, 'log');
    p_new.payload := coalesce(p_new.payload, '{}');
    p_new.created_at := coalesce(p_new.created_at, clock_timestamp());
    IF octet_length(p_new.message) > {message_max} THEN
        RAISE EXCEPTION 'the message is larger than % bytes', {message_max} USING ERRCODE = 'TM007';
    ELSIF octet_length(p_new.event_key) > {key_max} OR octet_length(p_new.event_id) > {key_max} THEN
        RAISE EXCEPTION 'event_key and event_id have at most % bytes each', {key_max} USING ERRCODE = 'TM007';
    ELSIF NOT {ops}.is_readable_time(p_new.created_at) THEN
        PERFORM {ops}.refuse_time('created_at', p_new.created_at);
    END IF;
    PERFORM {ops}.check_document('payload', p_new.payload, {payload_max});
    SELECT r.last_seq, r.finished_at INTO v_run FROM {ops}.runs r WHERE r.run_id = p_new.run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_new.run_id);
    END IF;
    IF v_run.finished_at IS NOT NULL THEN
        v_run.last_seq := coalesce((SELECT max(e.seq) FROM {ops}.run_events e WHERE e.run_id = p_new.run_id), 0);
    END IF;
    p_new.seq := coalesce(p_new.seq, v_run.last_seq + 1);
    IF p_new.seq NOT BETWEEN 1 AND 1000000000 THEN
        RAISE EXCEPTION 'seq is %; leave it out, and the event gets the next number', p_new.seq
            USING ERRCODE = 'TM006';
    END IF;
    IF EXISTS (SELECT FROM {ops}.run_steps s
                WHERE s.run_id = p_new.run_id
                  AND (s.seq = p_new.seq OR s.seq = p_new.seq + 1 AND s.step IN ('S', 'F'))) THEN
        RAISE EXCEPTION 'run % has an event with seq % already', p_new.run_id, p_new.seq
            USING ERRCODE = 'unique_violation', HINT = 'Leave seq out, and the event gets the next number.';
    END IF;
    INSERT INTO {ops}.run_log (run_id, seq, event_id, kind, level, message, payload, event_key, same_as, created_at)
    VALUES (p_new.run_id, p_new.seq, p_new.event_id, p_new.kind, p_new.level, p_new.message, p_new.payload,
            p_new.event_key, p_new.same_as, p_new.created_at);
    UPDATE {ops}.runs r SET last_seq = p_new.seq
     WHERE r.run_id = p_new.run_id AND r.last_seq < p_new.seq AND r.finished_at IS NULL;
    p_new.event_id := coalesce(p_new.event_id, 'evt-' || substr(p_new.run_id, 5) || '-' || p_new.seq);
    RETURN p_new;
END
$$;

CREATE OR REPLACE FUNCTION {ops}.guard_event()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    RETURN {ops}.event_by_hand(NEW);
END
$$;

CREATE OR REPLACE TRIGGER run_event_by_hand INSTEAD OF INSERT ON {ops}.run_events
    FOR EACH ROW EXECUTE FUNCTION {ops}.guard_event();

-- Appends one event to a run whose row the caller has locked, and returns its id.
CREATE FUNCTION {ops}.write_event(p_run_id text, p_kind text, p_level text, p_message text, p_payload jsonb,
                                  p_key text, p_same_as text, p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_seq integer;
BEGIN
    UPDATE {ops}.runs r SET last_seq = r.last_seq + 1 WHERE r.run_id = p_run_id AND r.finished_at IS NULL
    RETURNING r.last_seq INTO v_seq;
    IF NOT FOUND THEN
        -- last_seq of an ended run never changes: read the events.
        SELECT coalesce(max(e.seq), 0) + 1 INTO v_seq FROM {ops}.run_events e WHERE e.run_id = p_run_id;
    END IF;
    INSERT INTO {ops}.run_log (run_id, seq, kind, level, message, payload, event_key, same_as, created_at)
    VALUES (p_run_id, v_seq, p_kind, p_level, p_message, p_payload, p_key, p_same_as, p_now);
    RETURN 'evt-' || substr(p_run_id, 5) || '-' || v_seq;
END
$$;

-- Records a refused call once per run, verb and epoch: a stale worker that calls every second adds one event.
CREATE FUNCTION {ops}.record_refusal(p_run_id text, p_verb text, p_epoch integer, p_worker_id text,
                                     p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_same text := 'r:' || p_verb || ':' || p_epoch;
BEGIN
    IF NOT EXISTS (SELECT FROM {ops}.run_log e WHERE e.run_id = p_run_id AND e.same_as = v_same) THEN
        PERFORM {ops}.write_event(p_run_id, 'refusal', 'warn', 'Refused ' || p_verb || ': the lease is gone',
            jsonb_strip_nulls(jsonb_build_object('verb', p_verb, 'epoch', p_epoch, 'worker_id', p_worker_id)),
            NULL, v_same, p_now);
    END IF;
END
$$;
