-- Claims runs from every label set that fits: the highest priority first, then the oldest. A repeated call with the
-- same request id returns the same runs.
--
-- While a long transaction keeps old row versions alive, the start of the index fills with entries of runs that were
-- claimed long ago, and each claim would read past all of them. A claim that detects this (two searches were slow)
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
               epoch integer, attempt integer, timeout_secs integer, lease_until timestamptz, kind text)
LANGUAGE plpgsql {verb} SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := {call_time};
    -- How many runs may still be claimed. NULL: as many as the caller asks for.
    v_left  integer;
    -- Whether this search ignores saved positions, and claims from any label set.
    v_unrestricted boolean;
    -- Whether an earlier search of this call was slow.
    v_slow         boolean;
    v_locked       boolean;
    v_worker       record;
    v_fitting      bigint;
    v_any_due      boolean;
    v_any_saved    boolean;
    v_heads        record;
    v_started      timestamptz;
    v_duration     interval;
    v_claimed      integer;
    v_label_set    integer;
    v_priority     integer;
    v_ready_from   timestamptz;
    v_ready_to     timestamptz;
    v_run_to       text;
BEGIN
    -- One condition for the usual call: PL/pgSQL prepares each expression again in every transaction.
    IF (p_request_id IS NULL AND p_worker IS NULL AND (p_lease_secs IS NULL OR p_lease_secs BETWEEN 1 AND 86400)
        AND p_worker_id <> ''
        AND octet_length(p_worker_id) <= {key_max} AND p_worker_id !~ {control}) IS NOT TRUE THEN
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
            v_locked := pg_advisory_xact_lock(
                hashtextextended('tidemill claim ' || p_worker_id || ' ' || p_request_id, 0)) IS NULL;
            RETURN QUERY
                SELECT r.run_id, r.project_id, r.env_id, r.git_sha, r.git_ref, r.metadata,
                       r.epoch, r.attempt, r.timeout_secs, r.lease_until, r.kind
                  FROM {ops}.runs r
                 WHERE r.claimed_by = p_worker_id AND r.claim_request = p_request_id AND r.finished_at IS NULL;
            IF FOUND THEN
                RETURN;
            END IF;
        END IF;
        IF p_worker IS NOT NULL THEN
            SELECT w.ended_at, w.draining INTO v_worker FROM {ops}.workers w WHERE w.worker_id = p_worker;
            IF v_worker.ended_at IS NOT NULL THEN
                RAISE EXCEPTION 'worker % was declared dead, and its runs were given to other workers', p_worker_id
                    USING ERRCODE = 'TM005', HINT = 'Stop its commands, and register again.';
            ELSIF v_worker.draining THEN
                -- A draining worker gets no new runs. The query above has returned its runs of this request id.
                RETURN;
            END IF;
        END IF;
    END IF;

    SELECT count(*), min(s.label_set_id), bool_or(s.scan_until > clock_timestamp()), clock_timestamp(),
           EXISTS (SELECT FROM {ops}.runs r
                    WHERE r.gate = 'time' AND r.attention_at <= v_now AND r.available_at <= v_now)
      INTO v_fitting, v_label_set, v_any_saved, v_started, v_any_due
      FROM {ops}.label_sets s WHERE {label_set_is_claimable};
    -- The usual case needs no comparison between label sets. Runs that have become available may come first.
    IF v_fitting = 1 AND v_any_saved IS NOT TRUE
       AND (NOT v_any_due OR {ops}.open_due({batch_max}, v_now) IS NOT NULL) THEN
        {claim_first}
        {claim_last};
        IF FOUND THEN
            IF clock_timestamp() - v_started > interval '3 milliseconds' THEN
                PERFORM {ops}.save_position(v_label_set);
            END IF;
            RETURN;
        END IF;
        -- Perhaps the first runs were changed after the statement began: then it locked the new row versions, but did
        -- not see them. The search below does.
        v_slow := clock_timestamp() - v_started > interval '3 milliseconds';
    ELSIF v_any_due THEN
        PERFORM {ops}.open_due({batch_max}, v_now);
    END IF;
    IF v_fitting = 0 THEN
        RETURN;
    END IF;

    v_left := {claim_max};
    v_unrestricted := false;
    LOOP
        v_claimed := 0;
        v_started := clock_timestamp();
        -- The first run of every label set that fits, in order.
        SELECT bool_or(h.is_saved) AS any_saved,
               array_agg(h.label_set_id) AS label_set_ids, array_agg(h.is_saved) AS is_saved,
               array_agg(h.priority) AS priorities, array_agg(h.ready_at) AS ready_ats,
               array_agg(h.run_id) AS run_ids
          INTO v_heads
          FROM (SELECT s.label_set_id, s.scan_until > v_started AND NOT v_unrestricted AS is_saved,
                       head.priority, head.ready_at, head.run_id
                  FROM {ops}.label_sets s
                  LEFT JOIN LATERAL (
                    SELECT r.priority, r.ready_at, r.run_id FROM {ops}.runs r
                     WHERE r.label_set_id = s.label_set_id AND r.gate = 'open'
                       AND (v_unrestricted OR s.scan_until IS NULL OR s.scan_until <= v_started)
                     ORDER BY r.priority DESC, r.ready_at, r.run_id LIMIT 1) head ON true
                 WHERE {label_set_is_claimable}
                   AND (head.priority IS NOT NULL OR s.scan_until > v_started)
                 ORDER BY head.priority DESC, head.ready_at, head.run_id) h;
        IF v_heads.any_saved THEN
            SELECT true AS any_saved, n.label_set_ids, n.is_saved, n.priorities, n.ready_ats, n.run_ids
              INTO v_heads FROM {ops}.find_from_saved_positions(p_labels, p_projects, v_started, v_now) n;
        END IF;
        v_duration := clock_timestamp() - v_started;
        IF v_duration > interval '3 milliseconds' AND v_slow IS NOT TRUE THEN
            -- Perhaps it was only planned, or another process had the processor. A search that reads past dead entries
            -- is slow again.
            v_slow := true;
            CONTINUE;
        END IF;

        FOR v_position IN 1 .. coalesce(cardinality(v_heads.label_set_ids), 0) LOOP
            v_label_set := v_heads.label_set_ids[v_position];
            v_priority := v_heads.priorities[v_position];
            v_ready_from := v_heads.ready_ats[v_position];
            v_ready_to := CASE WHEN NOT v_unrestricted AND v_priority = v_heads.priorities[v_position + 1]
                               THEN v_heads.ready_ats[v_position + 1] ELSE 'infinity' END;
            v_run_to := v_heads.run_ids[v_position + 1];
            IF v_duration > interval '3 milliseconds' AND v_heads.is_saved[v_position] IS NOT TRUE THEN
                PERFORM {ops}.write_position(v_label_set, v_priority, v_ready_from, v_duration);
            END IF;
            -- Runs of this label set and priority, up to the first run of the next label set.
            {claim_first}
                AND q.priority = v_priority AND q.ready_at >= v_ready_from AND q.ready_at <= v_ready_to
                AND (q.ready_at < v_ready_to OR q.run_id < v_run_to)
            {claim_last};
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

-- Saves the position of the first run of a label set, where claims start to read for a short time (ADR 12). It does not
-- wait for another session that saves one.
CREATE FUNCTION {ops}.write_position(p_label_set integer, p_priority integer, p_ready_at timestamptz,
                                     p_duration interval)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {ops}.label_sets
       SET scan_priority = p_priority, scan_ready_at = p_ready_at,
           scan_until = clock_timestamp() + least(greatest(p_duration * 20, '100 ms'), '1 s')
     WHERE label_set_id = (SELECT s.label_set_id FROM {ops}.label_sets s
                            WHERE s.label_set_id = p_label_set FOR UPDATE SKIP LOCKED);
END
$$;

-- Searches the first run of a label set after a slow claim, and saves its position if that is slow too: the claim may
-- have waited for the processor only.
CREATE FUNCTION {ops}.save_position(p_label_set integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_started  timestamptz := clock_timestamp();
    v_head     record;
    v_duration interval;
BEGIN
    SELECT r.priority, r.ready_at INTO v_head FROM {ops}.runs r
     WHERE r.label_set_id = p_label_set AND r.gate = 'open' ORDER BY r.priority DESC, r.ready_at LIMIT 1;
    v_duration := clock_timestamp() - v_started;
    IF FOUND AND v_duration > interval '3 milliseconds' THEN
        PERFORM {ops}.write_position(p_label_set, v_head.priority, v_head.ready_at, v_duration);
    END IF;
END
$$;

-- The first run of every label set that fits, in order, from the saved positions on. Higher priorities are always
-- searched from their start.
CREATE FUNCTION {ops}.find_from_saved_positions(p_labels text[], p_projects text[], p_started timestamptz,
                                                p_now timestamptz)
RETURNS TABLE (label_set_ids integer[], is_saved boolean[], priorities integer[], ready_ats timestamptz[],
               run_ids text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now ALIAS FOR p_now;
BEGIN
    RETURN QUERY
        SELECT array_agg(h.label_set_id), array_agg(h.is_saved), array_agg(h.priority), array_agg(h.ready_at),
               array_agg(h.run_id)
          FROM (SELECT s.label_set_id, scan.is_saved, head.priority, head.ready_at, head.run_id
                  FROM {ops}.label_sets s
                 CROSS JOIN LATERAL (SELECT coalesce(s.scan_until > p_started, false) AS is_saved) scan
                 CROSS JOIN LATERAL (
                    (SELECT r.priority, r.ready_at, r.run_id FROM {ops}.runs r
                      WHERE r.label_set_id = s.label_set_id AND r.gate = 'open'
                        AND r.priority > CASE WHEN scan.is_saved THEN s.scan_priority ELSE -{priority_max} - 1 END
                      ORDER BY r.priority DESC, r.ready_at, r.run_id LIMIT 1)
                    UNION ALL
                    (SELECT r.priority, r.ready_at, r.run_id FROM {ops}.runs r
                      WHERE scan.is_saved AND r.label_set_id = s.label_set_id AND r.gate = 'open'
                        AND r.priority = s.scan_priority AND r.ready_at >= s.scan_ready_at
                      ORDER BY r.priority DESC, r.ready_at, r.run_id LIMIT 1)
                    UNION ALL
                    (SELECT r.priority, r.ready_at, r.run_id FROM {ops}.runs r
                      WHERE scan.is_saved AND r.label_set_id = s.label_set_id AND r.gate = 'open'
                        AND r.priority < s.scan_priority
                      ORDER BY r.priority DESC, r.ready_at, r.run_id LIMIT 1)
                    LIMIT 1) head
                 WHERE {label_set_is_claimable}
                 ORDER BY head.priority DESC, head.ready_at, head.run_id) h;
END
$$;
