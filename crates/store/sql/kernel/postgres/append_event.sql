-- Moves a claimed run to running, at its start or its first event. False if it is not claimed, or not by this caller.
CREATE FUNCTION {ops}.enter_running(p_run_id text, p_worker_id text, p_epoch integer, p_now timestamptz)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_now CONSTANT timestamptz := p_now;
BEGIN
    {enter_running};
    RETURN FOUND;
END
$$;

-- Starts a claimed run without an event. False if the caller no longer holds it.
CREATE FUNCTION {ops}.start_run(p_run_id text, p_worker_id text DEFAULT NULL, p_epoch integer DEFAULT NULL,
                                p_now timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql {verb} AS $$
-- `run` is a row of the table in a statement, and the record of that name elsewhere.
#variable_conflict use_column
DECLARE
    v_now timestamptz := {call_time};
    run   record;
BEGIN
    -- The usual case is one statement. If it changes no row, find out why.
    {enter_running};
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT r.status, r.epoch, r.claimed_by INTO run FROM {ops}.runs r
     WHERE r.run_id = p_run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_run_id);
    ELSIF NOT {caller_holds_run} THEN
        PERFORM {ops}.record_refusal(p_run_id, 'start', run.epoch, p_worker_id, v_now);
        RETURN false;
    ELSIF run.status = 'claimed' THEN
        PERFORM {ops}.enter_running(p_run_id, NULL, NULL, v_now);
    END IF;
    RETURN true;
END
$$;

-- Appends an event, and starts the run if it is the first. NULL if the caller no longer holds the run. The same key is
-- the same event; without a key, the same level, message and payload within ten seconds are.
CREATE FUNCTION {ops}.append_event(
    p_run_id    text,
    p_level     text,
    p_message   text,
    p_payload   jsonb DEFAULT '{}'::jsonb,
    p_key       text DEFAULT NULL,
    p_worker_id text DEFAULT NULL,
    p_epoch     integer DEFAULT NULL,
    p_now       timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql {verb} AS $$
BEGIN
    RETURN (SELECT a.event_id FROM {ops}.append_events(p_run_id, ARRAY[p_level], ARRAY[p_message],
        ARRAY[p_payload], ARRAY[p_key], p_worker_id, p_epoch, p_now) a);
END
$$;

-- Appends several events in order. Returns one row per event; its id is NULL if the caller no longer holds the run.
CREATE FUNCTION {ops}.append_events(
    p_run_id    text,
    p_levels    text[],
    p_messages  text[],
    p_payloads  jsonb[],
    p_keys      text[],
    p_worker_id text DEFAULT NULL,
    p_epoch     integer DEFAULT NULL,
    p_now       timestamptz DEFAULT NULL)
RETURNS TABLE (event_id text) LANGUAGE plpgsql {verb} AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := {call_time};
    run     record;
    v_held  boolean;
    v_event record;
    v_same  text;
    v_id    text;
    v_seq   integer;
    v_text  text;
BEGIN
    SELECT r.status, r.epoch, r.claimed_by, r.lease_until, r.lease_secs, r.stalled_at, r.last_seq INTO run
      FROM {ops}.runs r WHERE r.run_id = p_run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_run_id);
    END IF;
    v_held := {caller_holds_run};
    IF v_held AND run.status = 'claimed' THEN
        PERFORM {ops}.enter_running(p_run_id, NULL, NULL, v_now);
        run.last_seq := run.last_seq + 1;
    ELSIF v_held AND (run.stalled_at IS NOT NULL OR run.lease_until
                           < v_now + make_interval(secs => coalesce(run.lease_secs, {lease_secs}) * 0.8)) THEN
        -- This renews the lease, but promises no further heartbeats: only heartbeat() does.
        UPDATE {ops}.runs SET lease_until = v_now + make_interval(secs => coalesce(lease_secs, {lease_secs})),
                              stalled_at = NULL, updated_at = v_now
         WHERE run_id = p_run_id;
    END IF;
    v_seq := run.last_seq;
    FOR v_event IN
        SELECT e.level, e.message, coalesce(e.payload, '{}'::jsonb) AS payload, e.key
          FROM unnest(p_levels, p_messages, p_payloads, p_keys)
               WITH ORDINALITY AS e (level, message, payload, key, place)
         ORDER BY e.place
    LOOP
        IF v_event.level IS NULL OR v_event.level NOT IN ('debug', 'info', 'warn', 'error') THEN
            RAISE EXCEPTION '`%` is not a level; it is one of debug, info, warn, error', v_event.level
                USING ERRCODE = 'TM006';
        ELSIF v_event.message IS NULL THEN
            RAISE EXCEPTION 'event message is required' USING ERRCODE = 'TM006';
        ELSIF octet_length(v_event.message) > {message_max} THEN
            RAISE EXCEPTION 'the message is larger than % bytes', {message_max} USING ERRCODE = 'TM007';
        ELSIF octet_length(v_event.key) > {key_max} THEN
            PERFORM {ops}.check_text('p_key', v_event.key);
        END IF;
        v_text := v_event.payload::text;
        IF octet_length(v_text) > {payload_max} THEN
            RAISE EXCEPTION 'the payload is larger than % bytes', {payload_max} USING ERRCODE = 'TM007';
        ELSIF octet_length(v_text) > 16 AND {ops}.json_problem(v_event.payload, v_text) IS NOT NULL THEN
            PERFORM {ops}.check_document('the payload', v_event.payload, {payload_max});
        END IF;
        v_same := CASE WHEN v_event.key IS NOT NULL THEN 'k:' || v_event.key
            ELSE 'h:' || md5(v_event.level || chr(31) || v_event.message || chr(31) || v_text) END;
        SELECT coalesce(e.event_id, 'evt-' || substr(p_run_id, 5) || '-' || e.seq) INTO v_id FROM {ops}.run_log e
         WHERE e.run_id = p_run_id AND e.same_as = v_same
           AND (v_event.key IS NOT NULL OR e.created_at > v_now - make_interval(secs => {event_repeat_secs}))
         ORDER BY e.seq LIMIT 1;
        -- An event that was appended before returns its id even after the end: the caller's answer was lost.
        IF v_id IS NULL AND v_held THEN
            v_seq := v_seq + 1;
            v_id := 'evt-' || substr(p_run_id, 5) || '-' || v_seq;
            INSERT INTO {ops}.run_log (run_id, seq, kind, level, message, payload, event_key, same_as, created_at)
            VALUES (p_run_id, v_seq, 'log', v_event.level, v_event.message, v_event.payload, v_event.key, v_same,
                    v_now);
        ELSIF NOT v_held AND (v_id IS NULL OR v_event.key IS NULL) THEN
            v_id := NULL;
            PERFORM {ops}.record_refusal(p_run_id, 'append', run.epoch, p_worker_id, v_now);
        END IF;
        event_id := v_id;
        RETURN NEXT;
    END LOOP;
    IF v_seq > run.last_seq THEN
        UPDATE {ops}.runs SET last_seq = v_seq WHERE run_id = p_run_id;
    END IF;
END
$$;
