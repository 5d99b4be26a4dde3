-- Ends what no worker will end: dead workers, lost leases, timeouts, expired runs, unconfirmed cancels, and keys
-- without a head.
--
-- The sweep waits for no lock: it skips a run or a key that another transaction has, so that two sweepers share the
-- work and an open lease_guard protects its run. Each run has a savepoint of its own: a run that cannot be handled
-- gets an event with the error and is tried again later, and the others are swept. The lock_timeout covers locks
-- outside of our lock order, such as those of a trigger that a user added.
CREATE FUNCTION {ops}.sweep(p_limit integer DEFAULT 500, p_dead_after_secs double precision DEFAULT {dead_after_secs},
                            p_now timestamptz DEFAULT NULL)
RETURNS TABLE (run_id text, action text, successor text, error text)
LANGUAGE plpgsql {verb} SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := {call_time};
    v_run   record;
    v_done  integer := 0;
    v_state text;
BEGIN
    -- A server that was down received no heartbeats: count the silence from its start.
    UPDATE {ops}.workers SET ended_at = v_now, end_cause = 'dead', waiting = false
     WHERE worker_id IN (
        SELECT w.worker_id FROM {ops}.workers w
         WHERE w.ended_at IS NULL
           AND CASE WHEN p_now IS NULL THEN greatest(w.beat_at, pg_postmaster_start_time()) ELSE w.beat_at END
               < v_now - make_interval(secs => p_dead_after_secs)
           FOR UPDATE SKIP LOCKED);

    -- More candidates than the limit: locked ones must not use it up.
    FOR v_run IN
        SELECT r.run_id, w.end_cause AS worker_end,
               w.ended_at IS NULL AND r.run_id = ANY (w.locked_runs) AS is_locked
          FROM {ops}.runs r LEFT JOIN {ops}.workers w ON w.worker_id = r.worker_id
         WHERE r.run_id IN (
            -- One search for each gate, because the index is in the order of gate and time.
            (SELECT a.run_id FROM {ops}.runs a
              WHERE a.gate = 'open' AND a.attention_at <= v_now ORDER BY a.attention_at LIMIT 4 * p_limit)
            UNION ALL
            (SELECT a.run_id FROM {ops}.runs a
              WHERE a.gate = 'time' AND a.attention_at <= v_now ORDER BY a.attention_at LIMIT 4 * p_limit)
            UNION ALL
            (SELECT a.run_id FROM {ops}.runs a
              WHERE a.gate = 'key' AND a.attention_at <= v_now ORDER BY a.attention_at LIMIT 4 * p_limit)
            UNION ALL
            -- All held runs. An index by time would cost every claim and every finish an entry.
            (SELECT a.run_id FROM {ops}.runs a
              WHERE a.claimed_by IS NOT NULL AND a.finished_at IS NULL AND a.attention_at <= v_now
              ORDER BY a.attention_at LIMIT 4 * p_limit)
            UNION ALL
            (SELECT h.run_id FROM {ops}.workers d
               JOIN {ops}.runs h ON h.claimed_by = d.name AND h.worker_id = d.worker_id
                AND h.finished_at IS NULL
              WHERE d.ended_at IS NOT NULL LIMIT 4 * p_limit))
         ORDER BY r.run_id
    LOOP
        EXIT WHEN v_done >= p_limit;
        run_id := v_run.run_id;
        action := NULL;
        successor := NULL;
        error := NULL;
        BEGIN
            -- Locked one by one, because a query that locks would skip rows that this sweep itself has changed, such
            -- as the next run in line for a key. The function sweep_run reads the row again, because it may have
            -- changed since the query.
            PERFORM FROM {ops}.runs r WHERE r.run_id = v_run.run_id FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                SELECT s.action, s.successor INTO action, successor
                  FROM {ops}.sweep_run(v_run.run_id, v_run.worker_end, coalesce(v_run.is_locked, false), v_now) s;
                v_done := v_done + 1;
            END IF;
        EXCEPTION
            WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
                NULL;
            WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, error = MESSAGE_TEXT;
                -- A full disk or a server that stops is not a problem of the run.
                IF left(v_state, 2) IN ('53', '57', '58', 'XX') THEN
                    RAISE;
                END IF;
                v_done := v_done + 1;
                error := v_state || ': ' || error;
                PERFORM {ops}.defer_run(v_run.run_id, error, v_now);
        END;
        IF action IS NOT NULL OR error IS NOT NULL THEN
            RETURN NEXT;
        END IF;
    END LOOP;
    PERFORM {ops}.sweep_keys(p_limit);
END
$$;

-- Removes unused keys, and sets the head of keys that have a line but no head.
CREATE FUNCTION {ops}.sweep_keys(p_limit integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_key record;
BEGIN
    DELETE FROM {ops}.concurrency_keys d
     USING (SELECT k.project_id, k.concurrency_key FROM {ops}.concurrency_keys k
             WHERE k.head_run_id IS NULL
               AND NOT EXISTS (SELECT FROM {ops}.runs r WHERE r.project_id = k.project_id
                                  AND r.concurrency_key = k.concurrency_key AND r.gate = 'key')
             LIMIT 10 * p_limit FOR UPDATE SKIP LOCKED) idle
     WHERE d.project_id = idle.project_id AND d.concurrency_key = idle.concurrency_key AND d.head_run_id IS NULL;
    FOR v_key IN
        SELECT k.project_id, k.concurrency_key FROM {ops}.concurrency_keys k
         WHERE k.head_run_id IS NULL LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        BEGIN
            PERFORM {ops}.pass_key(v_key.project_id, v_key.concurrency_key, NULL);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'concurrency key % of project % could not be passed on: %', v_key.concurrency_key,
                v_key.project_id, SQLERRM;
        END;
    END LOOP;
END
$$;

-- Records that the sweep could not handle a run, and defers it by five minutes. The usual cause is an event that a
-- statement inserted with its own number, bypassing the triggers: last_seq is raised to the events that exist.
CREATE FUNCTION {ops}.defer_run(p_run_id text, p_error text, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_seq integer;
BEGIN
    SELECT greatest(r.last_seq, (SELECT max(e.seq) FROM {ops}.run_events e WHERE e.run_id = p_run_id)) + 1 INTO v_seq
      FROM {ops}.runs r WHERE r.run_id = p_run_id FOR NO KEY UPDATE SKIP LOCKED;
    IF v_seq IS NULL THEN
        RETURN;
    END IF;
    UPDATE {ops}.runs SET last_seq = v_seq, attention_at = p_now + interval '5 minutes' WHERE run_id = p_run_id;
    INSERT INTO {ops}.run_log (run_id, seq, kind, level, message, payload, created_at)
    VALUES (p_run_id, v_seq, 'request', 'error', 'Sweep failed', jsonb_build_object('error', left(p_error, 1000)),
            p_now);
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'run % could not be swept: %; recording that failed too: %', p_run_id, p_error, SQLERRM;
END
$$;

-- Decides one run whose row the caller has locked. A run of a worker that was stopped continues elsewhere, and is not
-- charged to the loss budget.
CREATE FUNCTION {ops}.sweep_run(p_run_id text, p_worker_end text, p_is_locked boolean, p_now timestamptz)
RETURNS TABLE (action text, successor text)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    v_run     {ops}.runs%ROWTYPE;
    v_gate    text;
    -- Whether the worker has promised heartbeats: by registering, by a heartbeat, or by asking for a lease.
    v_promised boolean;
    v_lost    boolean;
    v_stopped boolean;
    v_again   boolean;
    v_notes   jsonb;
BEGIN
    SELECT * INTO v_run FROM {ops}.runs r WHERE r.run_id = p_run_id;
    IF v_run.concurrency_key IS NOT NULL AND v_run.finished_at IS NULL
       AND NOT {ops}.lock_key(v_run.project_id, v_run.concurrency_key, false) THEN
        RETURN;
    END IF;
    v_promised := v_run.worker_id IS NOT NULL OR v_run.lease_secs IS NOT NULL;
    v_lost := p_worker_end IS NOT NULL OR (v_run.lease_until <= p_now AND NOT p_is_locked);
    v_stopped := coalesce(p_worker_end = 'stopped', false);
    v_again := v_run.cancel_requested_at IS NULL AND (v_stopped OR v_run.losses < v_run.max_losses);

    IF v_run.status = 'queued' AND v_run.expires_at <= p_now THEN
        PERFORM {ops}.end_run(p_run_id, 'cancelled', 'expired',
            jsonb_build_object('cancelled_by', 'system', 'reason', 'Nobody claimed the run before it expired'), p_now);
        RETURN QUERY SELECT 'expired'::text, NULL::text;
    ELSIF v_run.gate = 'time' AND v_run.available_at <= p_now THEN
        v_gate := CASE WHEN v_run.concurrency_key IS NULL THEN 'open'
                       ELSE {ops}.enter_key(v_run.run_id, v_run.project_id, v_run.concurrency_key, v_run.priority,
                                            v_run.ready_at, false) END;
        UPDATE {ops}.runs SET updated_at = p_now, gate = v_gate WHERE run_id = p_run_id;
    ELSIF v_run.status NOT IN ('claimed', 'running') THEN
        IF v_run.status = 'queued' THEN
            UPDATE {ops}.runs SET attention_at = {ops}.attention_at(v_run) WHERE run_id = p_run_id;
        END IF;
        RETURN;
    ELSIF v_run.cancel_requested_at IS NOT NULL AND (v_lost OR v_run.cancel_deadline_at <= p_now) THEN
        PERFORM {ops}.end_run(p_run_id, 'cancelled', 'cancel_grace', jsonb_strip_nulls(jsonb_build_object(
            'cancelled_by', v_run.cancel_requested_by, 'reason', v_run.cancel_reason)), p_now);
        RETURN QUERY SELECT 'cancel_grace'::text, NULL::text;
    ELSIF v_run.status = 'running' AND v_run.deadline_at <= p_now THEN
        PERFORM {ops}.end_run(p_run_id, 'failed', 'timed_out', jsonb_build_object(
            'error', 'the run took longer than ' || v_run.timeout_secs || ' s'), p_now);
        IF v_run.failures + 1 < v_run.max_attempts AND v_run.cancel_requested_at IS NULL THEN
            successor := {ops}.follow_run(p_run_id, v_run.failures + 1, v_run.losses,
                p_now + {ops}.backoff(v_run.backoff_secs, v_run.failures, p_run_id), p_now);
        END IF;
        RETURN QUERY SELECT 'timed_out'::text, successor;
    ELSIF v_lost AND v_run.status = 'running' AND NOT v_promised THEN
        PERFORM {ops}.stall_run(v_run, p_now);
    ELSIF v_lost THEN
        -- A stale claim of a worker that promised no heartbeats is cancelled without a successor: its work may have
        -- begun, so nothing may run beside it.
        v_again := v_again AND v_promised;
        v_notes := CASE WHEN v_run.status = 'claimed'
            THEN jsonb_build_object('cancelled_by', 'system', 'original_worker', v_run.claimed_by,
                'claimed_at', to_char(v_run.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                'reason', CASE p_worker_end
                    WHEN 'stopped' THEN 'Stale run (its worker was told to end before the first event)'
                    WHEN 'dead' THEN 'Stale run (its worker died before the first event)'
                    ELSE 'Stale run (claimed for >5 minutes without events)' END)
            ELSE jsonb_build_object('error', CASE WHEN v_stopped THEN 'worker stopped' ELSE 'worker lost' END,
                'original_worker', v_run.claimed_by) END;
        IF NOT v_again AND v_promised THEN
            v_notes := v_notes || jsonb_build_object('quarantined', true, 'losses', v_run.losses + 1,
                'output_tail', (SELECT coalesce(jsonb_agg(t.message ORDER BY t.seq), '[]'::jsonb)
                    FROM (SELECT e.seq, left(e.message, 1000) AS message FROM {ops}.run_log e
                           WHERE e.run_id = p_run_id AND e.kind = 'log' ORDER BY e.seq DESC LIMIT 20) t));
        END IF;
        action := CASE WHEN NOT v_promised THEN 'stale' WHEN NOT v_again THEN 'quarantined'
                       WHEN v_stopped THEN 'interrupted'
                       WHEN v_run.status = 'claimed' THEN 'stale' ELSE 'lost' END;
        PERFORM {ops}.end_run(p_run_id, CASE WHEN v_run.status = 'claimed' THEN 'cancelled' ELSE 'failed' END,
            action, v_notes, p_now);
        IF v_again THEN
            successor := {ops}.follow_run(p_run_id, v_run.failures,
                v_run.losses + CASE WHEN v_stopped THEN 0 ELSE 1 END, NULL, p_now);
        END IF;
        RETURN QUERY SELECT action, successor;
    ELSIF p_is_locked THEN
        -- The worker could not renew the lease, because another transaction had locked the row. Renew it here, for as
        -- long as a heartbeat would.
        UPDATE {ops}.runs SET lease_until = p_now + make_interval(secs => lease_secs), updated_at = p_now
         WHERE run_id = p_run_id;
    ELSE
        -- The lease was renewed meanwhile: examine the run again when it ends.
        UPDATE {ops}.runs SET attention_at = {ops}.attention_at(v_run) WHERE run_id = p_run_id;
    END IF;
END
$$;

-- Marks a running run whose worker is silent and has promised no heartbeats: it may be alive, so the run stays with it,
-- and an operator decides (ADR 24). An event or a heartbeat restores the lease.
CREATE FUNCTION {ops}.stall_run(p_run {ops}.runs, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {ops}.runs SET stalled_at = p_now, lease_until = NULL, updated_at = p_now,
                          attention_at = least(deadline_at, cancel_deadline_at), last_seq = last_seq + 1
     WHERE run_id = p_run.run_id;
    INSERT INTO {ops}.run_log (run_id, seq, kind, level, message, payload, created_at)
    VALUES (p_run.run_id, p_run.last_seq + 1, 'request', 'warn', 'Run stalled: no sign of life from its worker',
            jsonb_strip_nulls(jsonb_build_object('worker_id', p_run.claimed_by, 'silent_since',
                to_char((p_run.lease_until - make_interval(secs => {lease_secs})) AT TIME ZONE 'UTC',
                        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))), p_now);
    INSERT INTO {ops}.run_notices (run_id) VALUES (p_run.run_id) ON CONFLICT DO NOTHING;
END
$$;

-- Ends a run on behalf of the system.
CREATE FUNCTION {ops}.end_run(p_run_id text, p_status text, p_cause text, p_notes jsonb, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_from text;
    v_seq  integer;
BEGIN
    SELECT r.status INTO v_from FROM {ops}.runs r WHERE r.run_id = p_run_id;
    UPDATE {ops}.runs r
       SET status = p_status, gate = NULL, finished_at = p_now, updated_at = p_now, end_cause = p_cause,
           input = coalesce(r.input, r.metadata), metadata = r.metadata || p_notes,
           attention_at = NULL, last_seq = r.last_seq + 1
     WHERE r.run_id = p_run_id
    RETURNING r.last_seq INTO v_seq;
    PERFORM {ops}.record_step(p_run_id, v_seq, v_from, p_status, NULL, p_cause, p_now);
    PERFORM {ops}.record_end(r) FROM {ops}.runs r WHERE r.run_id = p_run_id;
END
$$;
