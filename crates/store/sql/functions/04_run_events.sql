-- The record of changes. A verb writes the event in the statement that changes the run; what a plain statement does to
-- a run is put on record here and in 02_run_by_hand.sql, so that it is on record whoever does it.

-- Writes the event of one step of a run, whose number the caller has raised.
CREATE FUNCTION {ops}.record_step(p_run_id text, p_seq integer, p_from text, p_to text, p_worker text, p_cause text,
                                  p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {ops}.run_events (run_id, seq, event_id, kind, level, message, payload, created_at)
    VALUES (p_run_id, p_seq, 'evt-' || substr(p_run_id, 5) || '-' || p_seq, 'transition',
            CASE p_to WHEN 'failed' THEN 'error' WHEN 'cancelled' THEN 'warn' ELSE 'info' END,
            CASE p_to WHEN 'claimed' THEN 'Run claimed by worker' WHEN 'running' THEN 'Run started'
                      WHEN 'success' THEN 'Run succeeded' WHEN 'failed' THEN 'Run failed' ELSE 'Run cancelled' END,
            jsonb_strip_nulls(jsonb_build_object('from', p_from, 'to', p_to, 'worker_id', p_worker, 'cause', p_cause)),
            p_now);
END
$$;

-- Records a run that a plain INSERT brought.
CREATE FUNCTION {ops}.record_by_hand(p_new {ops}.runs)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {ops}.run_events (run_id, seq, event_id, kind, level, message, payload, env_id, created_at)
    VALUES (p_new.run_id, 1, 'evt-' || substr(p_new.run_id, 5) || '-1', 'transition', 'info', 'Run queued',
            CASE WHEN p_new.retry_of IS NULL THEN jsonb_build_object('to', p_new.status)
                 ELSE jsonb_build_object('to', p_new.status, 'retry_of', p_new.retry_of, 'attempt', p_new.attempt) END,
            p_new.env_id, p_new.created_at);
    UPDATE {ops}.runs SET last_seq = 1 WHERE run_id = p_new.run_id;
    IF p_new.status = ANY ('{failed,cancelled}') THEN
        -- It was brought here after its end: it is listed, and nobody is told.
        INSERT INTO {ops}.run_ends (status, run_id) VALUES (p_new.status, p_new.run_id) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- An event that a plain statement appends gets its id, and the run the number that the next event goes on from.
CREATE OR REPLACE FUNCTION {ops}.complete_event()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.event_id := 'evt-' || substr(NEW.run_id, 5) || '-' || NEW.seq;
    UPDATE {ops}.runs r SET last_seq = NEW.seq
     WHERE r.run_id = NEW.run_id AND r.last_seq < NEW.seq AND r.finished_at IS NULL;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER run_event_by_hand BEFORE INSERT ON {ops}.run_events
    FOR EACH ROW WHEN (NEW.event_id IS NULL) EXECUTE FUNCTION {ops}.complete_event();

-- Appends one event to a run whose row the caller has locked, and returns its id.
CREATE FUNCTION {ops}.write_event(p_run_id text, p_kind text, p_level text, p_message text, p_payload jsonb,
                                  p_key text, p_same_as text, p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_seq integer;
    v_id  text;
BEGIN
    UPDATE {ops}.runs r SET last_seq = r.last_seq + 1 WHERE r.run_id = p_run_id AND r.finished_at IS NULL
    RETURNING r.last_seq INTO v_seq;
    IF NOT FOUND THEN
        -- What has ended does not change, and its number neither: ask the record itself.
        SELECT coalesce(max(e.seq), 0) + 1 INTO v_seq FROM {ops}.run_events e WHERE e.run_id = p_run_id;
    END IF;
    v_id := 'evt-' || substr(p_run_id, 5) || '-' || v_seq;
    INSERT INTO {ops}.run_events (run_id, seq, event_id, kind, level, message, payload, event_key, same_as, created_at)
    VALUES (p_run_id, v_seq, v_id, p_kind, p_level, p_message, p_payload, p_key, p_same_as, p_now);
    RETURN v_id;
END
$$;

-- Records that a call was refused, once per run, verb and epoch: a zombie that asks every second is one line.
CREATE FUNCTION {ops}.record_refusal(p_run_id text, p_verb text, p_epoch integer, p_worker_id text,
                                     p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_same text := 'r:' || p_verb || ':' || p_epoch;
BEGIN
    IF NOT EXISTS (SELECT FROM {ops}.run_events e WHERE e.run_id = p_run_id AND e.same_as = v_same) THEN
        PERFORM {ops}.write_event(p_run_id, 'refusal', 'warn', 'Refused ' || p_verb || ': the lease is gone',
            jsonb_strip_nulls(jsonb_build_object('verb', p_verb, 'epoch', p_epoch, 'worker_id', p_worker_id)),
            NULL, v_same, p_now);
    END IF;
END
$$;
