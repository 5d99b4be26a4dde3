-- Claims runs from every label set that fits: the highest priority first, then the oldest. A repeated call with the
-- same request id returns the same runs.
--
-- While a long transaction keeps old row versions alive, the start of the index fills with entries of runs that were
-- claimed long ago, and each claim would read past all of them. A claim that detects this (its search was slow twice)
-- saves the position of the first live entry in the label set; for a short time other claims start there (ADR 12).
CREATE FUNCTION {ops}.claim_next_run(
    p_worker_id  text,
    p_limit      integer DEFAULT 1,
    p_labels     text[] DEFAULT '{}',
    p_projects   text[] DEFAULT NULL,
    p_worker     uuid DEFAULT NULL,
    p_request_id text DEFAULT NULL,
    p_lease_secs integer DEFAULT NULL,
    p_now        timestamptz DEFAULT NULL)
RETURNS TABLE (run_id text, project_id text, env_id text, git_sha text, git_ref text, metadata jsonb,
               epoch integer, attempt integer, timeout_secs integer, lease_until timestamptz)
LANGUAGE plpgsql {verb} SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := {call_time};
    v_until timestamptz := v_now + make_interval(secs => coalesce(p_lease_secs, {lease_secs}));
    -- NULL if the worker has promised no heartbeats: the sweeper does not fail such a run for silence (ADR 24).
    v_lease_secs integer := CASE WHEN p_worker IS NULL THEN p_lease_secs ELSE coalesce(p_lease_secs, {lease_secs}) END;
    v_event jsonb := jsonb_build_object('from', 'queued', 'to', 'claimed', 'worker_id', p_worker_id);
    v_left  integer := least(greatest(p_limit, 1), {batch_max});
    v_first boolean := true;
    -- Whether this search ignores saved positions, and claims from any label set.
    v_unrestricted boolean := false;
    v_slow         boolean := false;
    v_heads        record;
    v_started      timestamptz;
    v_duration     interval;
    v_claimed      integer;
    v_label_set    integer;
    v_priority     integer;
    v_ready_from   timestamptz;
    v_ready_to     timestamptz;
BEGIN
    IF p_worker_id IS NULL OR p_worker_id = '' THEN
        RAISE EXCEPTION 'worker name must not be empty' USING ERRCODE = 'TM006';
    ELSIF p_lease_secs NOT BETWEEN 1 AND 86400 THEN
        RAISE EXCEPTION 'lease must be between 1 and 86400 seconds' USING ERRCODE = 'TM006';
    ELSIF octet_length(p_worker_id) > {key_max} OR octet_length(p_request_id) > {key_max}
       OR p_worker_id || coalesce(p_request_id, '') ~ {control} THEN
        PERFORM {ops}.check_line('p_worker_id', p_worker_id), {ops}.check_line('p_request_id', p_request_id);
    END IF;
    IF p_request_id IS NOT NULL THEN
        -- Two identical requests at the same time: the second waits here, and then finds the runs of the first.
        PERFORM pg_advisory_xact_lock(
            hashtextextended('tidemill claim ' || p_worker_id || ' ' || p_request_id, 0));
    END IF;

    LOOP
        v_claimed := 0;
        v_started := clock_timestamp();
        -- One query: the checks that come first, and the first run of every label set that fits, in order.
        SELECT v_first AND EXISTS (
                   SELECT FROM {ops}.runs r
                    WHERE r.claimed_by = p_worker_id AND r.claim_request = p_request_id
                      AND r.finished_at IS NULL) AS is_repeat,
               (SELECT CASE WHEN w.ended_at IS NOT NULL THEN 'ended' WHEN w.draining THEN 'draining' END
                  FROM {ops}.workers w WHERE v_first AND w.worker_id = p_worker) AS worker_state,
               v_first AND EXISTS (
                   SELECT FROM {ops}.runs r WHERE r.gate = 'time' AND r.available_at <= v_now) AS any_due,
               bool_or(h.is_saved) AS any_saved,
               array_agg(h.label_set_id) AS label_set_ids, array_agg(h.is_saved) AS is_saved,
               array_agg(h.priority) AS priorities, array_agg(h.ready_at) AS ready_ats
          INTO v_heads
          FROM (SELECT s.label_set_id, s.scan_until > v_started AND NOT v_unrestricted AS is_saved,
                       head.priority, head.ready_at
                  FROM {ops}.label_sets s
                  LEFT JOIN LATERAL (
                    SELECT r.priority, r.ready_at FROM {ops}.runs r
                     WHERE r.label_set_id = s.label_set_id AND r.gate = 'open'
                       AND (v_unrestricted OR s.scan_until IS NULL OR s.scan_until <= v_started)
                     ORDER BY r.priority DESC, r.ready_at LIMIT 1) head ON true
                 WHERE {label_set_is_claimable}
                   AND (head.priority IS NOT NULL OR s.scan_until > v_started)
                 ORDER BY head.priority DESC, head.ready_at) h;
        IF v_heads.any_saved THEN
            SELECT v_heads.is_repeat, v_heads.worker_state, v_heads.any_due, true AS any_saved, n.label_set_ids,
                   n.is_saved, n.priorities, n.ready_ats
              INTO v_heads FROM {ops}.find_from_saved_positions(p_labels, p_projects, v_started, v_now) n;
        END IF;
        v_duration := clock_timestamp() - v_started;
        IF v_duration > interval '3 milliseconds' AND NOT v_slow THEN
            -- Perhaps it was only planned, or another process had the processor. A search that reads past dead entries
            -- is slow again.
            v_slow := true;
            CONTINUE;
        END IF;
        v_first := false;

        IF v_heads.is_repeat THEN
            RETURN QUERY
                SELECT r.run_id, r.project_id, r.env_id, r.git_sha, r.git_ref, r.metadata,
                       r.epoch, r.attempt, r.timeout_secs, r.lease_until
                  FROM {ops}.runs r
                 WHERE r.claimed_by = p_worker_id AND r.claim_request = p_request_id
                   AND r.finished_at IS NULL;
            RETURN;
        ELSIF v_heads.worker_state = 'ended' THEN
            RAISE EXCEPTION 'worker % was declared dead, and its runs were given to other workers', p_worker_id
                USING ERRCODE = 'TM005', HINT = 'Stop its commands, and register again.';
        ELSIF v_heads.worker_state = 'draining' THEN
            -- No new runs. The branch above has returned those that it got with this request id.
            RETURN;
        ELSIF v_heads.any_due THEN
            -- Runs that have become available may come first: search again.
            PERFORM {ops}.open_due({batch_max}, v_now);
            CONTINUE;
        END IF;

        FOR v_position IN 1 .. coalesce(cardinality(v_heads.label_set_ids), 0) LOOP
            v_label_set := v_heads.label_set_ids[v_position];
            v_priority := v_heads.priorities[v_position];
            v_ready_from := v_heads.ready_ats[v_position];
            v_ready_to := CASE WHEN NOT v_unrestricted AND v_priority = v_heads.priorities[v_position + 1]
                               THEN v_heads.ready_ats[v_position + 1] ELSE 'infinity' END;
            IF v_duration > interval '3 milliseconds' AND v_heads.is_saved[v_position] IS NOT TRUE THEN
                UPDATE {ops}.label_sets
                   SET scan_priority = v_priority, scan_ready_at = v_ready_from,
                       scan_until = clock_timestamp() + least(greatest(v_duration * 20, '100 ms'), '1 s')
                 WHERE label_set_id = (SELECT s.label_set_id FROM {ops}.label_sets s
                                        WHERE s.label_set_id = v_label_set FOR UPDATE SKIP LOCKED);
            END IF;
            -- Runs of this label set and priority, up to the first run of the next label set. By ctid, which does not
            -- change while the rows are locked: a second search by id would double the cost.
            RETURN QUERY
                WITH claimed AS (
                    UPDATE {ops}.runs r
                       SET status = 'claimed', gate = NULL, claimed_by = p_worker_id, worker_id = p_worker,
                           claim_request = p_request_id, epoch = least(r.epoch, 2147483646) + 1, started_at = v_now,
                           lease_secs = v_lease_secs, lease_until = v_until, attention_at = v_until,
                           last_seq = r.last_seq + 1, updated_at = v_now
                     WHERE r.ctid = ANY (ARRAY(
                        SELECT q.ctid FROM {ops}.runs q
                         WHERE q.label_set_id = v_label_set AND q.gate = 'open'
                           AND q.priority = v_priority AND q.ready_at >= v_ready_from AND q.ready_at <= v_ready_to
                         ORDER BY q.priority DESC, q.ready_at, q.run_id LIMIT v_left
                           FOR UPDATE SKIP LOCKED))
                    RETURNING r.run_id, r.project_id, r.env_id, r.git_sha, r.git_ref, r.metadata,
                              r.epoch, r.attempt, r.timeout_secs, r.lease_until, r.last_seq),
                recorded AS (
                    INSERT INTO {ops}.run_events (run_id, seq, event_id, kind, level, message, payload, created_at)
                    SELECT c.run_id, c.last_seq, 'evt-' || substr(c.run_id, 5) || '-' || c.last_seq, 'transition',
                           'info', 'Run claimed by worker', v_event, v_now
                      FROM claimed c)
                SELECT c.run_id, c.project_id, c.env_id, c.git_sha, c.git_ref, c.metadata,
                       c.epoch, c.attempt, c.timeout_secs, c.lease_until
                  FROM claimed c;
            GET DIAGNOSTICS v_claimed = ROW_COUNT;
            EXIT WHEN v_claimed > 0;
        END LOOP;
        v_left := v_left - v_claimed;
        EXIT WHEN v_left = 0;
        IF v_claimed = 0 THEN
            -- There is no run, or others are claiming the first ones. A saved position may hide older runs, and the
            -- order of the label sets later ones: search once more without either.
            EXIT WHEN v_unrestricted OR v_heads.label_set_ids IS NULL AND v_heads.any_saved IS NOT TRUE;
            v_unrestricted := true;
        END IF;
    END LOOP;
END
$$;

-- The first run of every label set that fits, in order, from the saved positions on. Higher priorities are always
-- searched from their start.
CREATE FUNCTION {ops}.find_from_saved_positions(p_labels text[], p_projects text[], p_started timestamptz,
                                                p_now timestamptz)
RETURNS TABLE (label_set_ids integer[], is_saved boolean[], priorities integer[], ready_ats timestamptz[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now ALIAS FOR p_now;
BEGIN
    RETURN QUERY
        SELECT array_agg(h.label_set_id), array_agg(h.is_saved), array_agg(h.priority), array_agg(h.ready_at)
          FROM (SELECT s.label_set_id, scan.is_saved, head.priority, head.ready_at
                  FROM {ops}.label_sets s
                 CROSS JOIN LATERAL (SELECT coalesce(s.scan_until > p_started, false) AS is_saved) scan
                 CROSS JOIN LATERAL (
                    (SELECT r.priority, r.ready_at FROM {ops}.runs r
                      WHERE r.label_set_id = s.label_set_id AND r.gate = 'open'
                        AND r.priority > CASE WHEN scan.is_saved THEN s.scan_priority ELSE -{priority_max} - 1 END
                      ORDER BY r.priority DESC, r.ready_at LIMIT 1)
                    UNION ALL
                    (SELECT r.priority, r.ready_at FROM {ops}.runs r
                      WHERE scan.is_saved AND r.label_set_id = s.label_set_id AND r.gate = 'open'
                        AND r.priority = s.scan_priority AND r.ready_at >= s.scan_ready_at
                      ORDER BY r.priority DESC, r.ready_at LIMIT 1)
                    UNION ALL
                    (SELECT r.priority, r.ready_at FROM {ops}.runs r
                      WHERE scan.is_saved AND r.label_set_id = s.label_set_id AND r.gate = 'open'
                        AND r.priority < s.scan_priority
                      ORDER BY r.priority DESC, r.ready_at LIMIT 1)
                    LIMIT 1) head
                 WHERE {label_set_is_claimable}
                 ORDER BY head.priority DESC, head.ready_at) h;
END
$$;
