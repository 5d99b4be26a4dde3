-- Decides everything that nobody else will: dead workers, lost leases, timeouts, expiry, cancels that nobody
-- confirmed, keys without a head. Every row is locked before it is looked at, and passed over where somebody else
-- has it: two sweepers share the work, and an open lease_guard holds the sweeper off.
CREATE FUNCTION {ops}.sweep(p_limit integer DEFAULT 500, p_dead_after_secs double precision DEFAULT {dead_after_secs},
                            p_now timestamptz DEFAULT NULL)
RETURNS TABLE (run_id text, action text, successor text)
LANGUAGE plpgsql {verb} AS $$
#variable_conflict use_column
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_run  record;
    v_key  record;
BEGIN
    -- A server that was down heard no beat: count silence from its start on.
    UPDATE {ops}.workers SET ended_at = v_now, end_cause = 'dead', waiting = false
     WHERE worker_id IN (
        SELECT w.worker_id FROM {ops}.workers w
         WHERE w.ended_at IS NULL
           AND CASE WHEN p_now IS NULL THEN greatest(w.beat_at, pg_postmaster_start_time()) ELSE w.beat_at END
               < v_now - make_interval(secs => p_dead_after_secs)
           FOR UPDATE SKIP LOCKED);

    FOR v_run IN
        SELECT r.run_id, w.end_cause AS worker_end
          FROM {ops}.runs r LEFT JOIN {ops}.workers w ON w.worker_id = r.worker_id
         WHERE r.run_id IN (
            (SELECT a.run_id FROM {ops}.runs a WHERE a.attention_at <= v_now
              ORDER BY a.attention_at LIMIT p_limit)
            UNION ALL
            (SELECT h.run_id FROM {ops}.workers d
               JOIN {ops}.runs h ON h.claimed_by = d.name AND h.worker_id = d.worker_id
                AND h.finished_at IS NULL
              WHERE d.ended_at IS NOT NULL LIMIT p_limit))
         ORDER BY r.run_id
    LOOP
        -- Locked one by one: a search that locks would pass over what an earlier end of this sweep has changed, such
        -- as the next in line for a key. The row may have changed since the search, and is read anew.
        PERFORM FROM {ops}.runs r WHERE r.run_id = v_run.run_id FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        SELECT s.action, s.successor INTO action, successor
          FROM {ops}.sweep_run(v_run.run_id, v_run.worker_end, v_now) s;
        IF action IS NOT NULL THEN
            run_id := v_run.run_id;
            RETURN NEXT;
        END IF;
    END LOOP;

    FOR v_key IN
        SELECT k.project_id, k.concurrency_key FROM {ops}.concurrency_keys k
         WHERE k.head_run_id IS NULL ORDER BY 1, 2 LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM {ops}.pass_key(v_key.project_id, v_key.concurrency_key, NULL);
    END LOOP;
END
$$;

-- Decides one run whose row the caller has locked. A worker that was told to end is nobody's loss: what it had to
-- leave goes on elsewhere, and counts against no budget.
CREATE FUNCTION {ops}.sweep_run(p_run_id text, p_worker_end text, p_now timestamptz)
RETURNS TABLE (action text, successor text)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    v_run     {ops}.runs%ROWTYPE;
    v_lost    boolean;
    v_stopped boolean;
    v_again   boolean;
    v_notes   jsonb;
BEGIN
    SELECT * INTO v_run FROM {ops}.runs r WHERE r.run_id = p_run_id;
    v_lost := p_worker_end IS NOT NULL OR v_run.lease_until <= p_now;
    v_stopped := coalesce(p_worker_end = 'stopped', false);
    v_again := v_run.cancel_requested_at IS NULL AND (v_stopped OR v_run.losses < v_run.max_losses);

    IF v_run.status = 'queued' AND v_run.expires_at <= p_now THEN
        PERFORM {ops}.end_run(p_run_id, 'cancelled', 'expired',
            jsonb_build_object('cancelled_by', 'system', 'reason', 'Nobody claimed the run before it expired'), p_now);
        RETURN QUERY SELECT 'expired'::text, NULL::text;
    ELSIF v_run.gate = 'time' AND v_run.available_at <= p_now THEN
        UPDATE {ops}.runs r SET updated_at = p_now, gate =
            CASE WHEN r.concurrency_key IS NULL THEN 'open'
                 ELSE {ops}.enter_key(r.run_id, r.project_id, r.concurrency_key, r.priority) END
         WHERE r.run_id = p_run_id;
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
    ELSIF v_lost THEN
        v_notes := CASE WHEN v_run.status = 'claimed'
            THEN jsonb_build_object('cancelled_by', 'system', 'original_worker', v_run.claimed_by,
                'claimed_at', to_char(v_run.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                'reason', CASE p_worker_end
                    WHEN 'stopped' THEN 'Stale run (its worker was told to end before the first event)'
                    WHEN 'dead' THEN 'Stale run (its worker died before the first event)'
                    ELSE 'Stale run (claimed for >5 minutes without events)' END)
            ELSE jsonb_build_object('error', CASE WHEN v_stopped THEN 'worker stopped' ELSE 'worker lost' END,
                'original_worker', v_run.claimed_by) END;
        IF NOT v_again THEN
            v_notes := v_notes || jsonb_build_object('quarantined', true, 'losses', v_run.losses + 1,
                'output_tail', (SELECT coalesce(jsonb_agg(t.message ORDER BY t.seq), '[]'::jsonb)
                    FROM (SELECT e.seq, left(e.message, 1000) AS message FROM {ops}.run_events e
                           WHERE e.run_id = p_run_id AND e.kind = 'log' ORDER BY e.seq DESC LIMIT 20) t));
        END IF;
        action := CASE WHEN NOT v_again THEN 'quarantined' WHEN v_stopped THEN 'interrupted'
                       WHEN v_run.status = 'claimed' THEN 'stale' ELSE 'lost' END;
        PERFORM {ops}.end_run(p_run_id, CASE WHEN v_run.status = 'claimed' THEN 'cancelled' ELSE 'failed' END,
            action, v_notes, p_now);
        IF v_again THEN
            successor := {ops}.follow_run(p_run_id, v_run.failures,
                v_run.losses + CASE WHEN v_stopped THEN 0 ELSE 1 END, NULL, p_now);
        END IF;
        RETURN QUERY SELECT action, successor;
    ELSE
        -- The lease was renewed since: look again when it ends.
        UPDATE {ops}.runs SET attention_at = {ops}.attention_at(v_run) WHERE run_id = p_run_id;
    END IF;
END
$$;

-- Ends a run on the system's behalf.
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
    PERFORM {ops}.note_end(r) FROM {ops}.runs r WHERE r.run_id = p_run_id;
END
$$;
