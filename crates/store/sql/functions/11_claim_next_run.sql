-- Claims runs: of every shelf that fits, the highest priority first, then the oldest. Asked again with the same
-- request id, it returns the same runs.
--
-- While a long transaction keeps old row versions alive, the head of the index fills with entries of runs that
-- were claimed long ago, and each claim would read past all of them. A claim that notices this (the search took
-- long, and once more took long) notes on the shelf where the living begin; for a short time others start there.
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
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_until timestamptz := v_now + make_interval(secs => coalesce(p_lease_secs, {lease_secs}));
    -- NULL where nobody has promised signs of life: such a run is not taken away for silence (ADR 24).
    v_lease_secs integer := CASE WHEN p_worker IS NULL THEN p_lease_secs ELSE coalesce(p_lease_secs, {lease_secs}) END;
    v_event jsonb := jsonb_build_object('from', 'queued', 'to', 'claimed', 'worker_id', p_worker_id);
    v_left  integer := least(greatest(p_limit, 1), {batch_max});
    v_first boolean := true;
    v_whole boolean := false;
    v_slow  boolean := false;
    v_look  record;
    v_began timestamptz;
    v_took  interval;
    v_taken integer;
    v_shelf integer;
    v_rank  integer;
    v_since timestamptz;
    v_last  timestamptz;
BEGIN
    IF p_worker_id IS NULL OR p_worker_id = '' THEN
        RAISE EXCEPTION 'a worker claims under a name' USING ERRCODE = 'TM006';
    ELSIF p_lease_secs NOT BETWEEN 1 AND 86400 THEN
        RAISE EXCEPTION 'a lease lasts between 1 and 86400 seconds' USING ERRCODE = 'TM006';
    ELSIF octet_length(p_worker_id) > {key_max} OR octet_length(p_request_id) > {key_max} THEN
        PERFORM {ops}.check_text('p_worker_id', p_worker_id), {ops}.check_text('p_request_id', p_request_id);
    END IF;
    IF p_request_id IS NOT NULL THEN
        -- The same request at the same instant: the second waits here, and its first look sees what the first got.
        PERFORM pg_advisory_xact_lock(
            hashtextextended('tidemill claim ' || p_worker_id || ' ' || p_request_id, 0));
    END IF;

    LOOP
        v_taken := 0;
        v_began := clock_timestamp();
        -- One look: what has to be settled first, and the heads of the shelves that fit, in order.
        SELECT v_first AND EXISTS (
                   SELECT FROM {ops}.runs r
                    WHERE r.claimed_by = p_worker_id AND r.claim_request = p_request_id
                      AND r.finished_at IS NULL) AS asked_before,
               (SELECT CASE WHEN w.ended_at IS NOT NULL THEN 'ended' WHEN w.draining THEN 'draining' END
                  FROM {ops}.workers w WHERE v_first AND w.worker_id = p_worker) AS stays_out,
               v_first AND EXISTS (
                   SELECT FROM {ops}.runs r WHERE r.gate = 'time' AND r.available_at <= v_now) AS any_due,
               bool_or(h.noted) AS any_noted,
               array_agg(h.shelf_id) AS shelf_ids, array_agg(h.noted) AS noted,
               array_agg(h.priority) AS priorities, array_agg(h.ready_at) AS ready_ats
          INTO v_look
          FROM (SELECT s.shelf_id, s.scan_until > v_began AND NOT v_whole AS noted, head.priority, head.ready_at
                  FROM {ops}.shelves s
                  LEFT JOIN LATERAL (
                    SELECT r.priority, r.ready_at FROM {ops}.runs r
                     WHERE r.shelf_id = s.shelf_id AND r.gate = 'open'
                       AND (v_whole OR s.scan_until IS NULL OR s.scan_until <= v_began)
                     ORDER BY r.priority DESC, r.ready_at LIMIT 1) head ON true
                 WHERE s.labels <@ p_labels
                   AND (p_projects IS NULL OR s.project_id = ANY (p_projects))
                   AND NOT EXISTS (SELECT FROM {ops}.flags f
                                    WHERE f.flag = 'paused'
                                      AND f.scope IN (CASE WHEN '{sync_label}' = ANY (s.labels) THEN 'lane:sync'
                                                           ELSE 'lane:ops' END, 'project:' || s.project_id)
                                      AND (f.until_at IS NULL OR f.until_at > v_now))
                   AND (head.priority IS NOT NULL OR s.scan_until > v_began)
                 ORDER BY head.priority DESC, head.ready_at) h;
        IF v_look.any_noted THEN
            SELECT v_look.asked_before, v_look.stays_out, v_look.any_due, true AS any_noted, n.shelf_ids, n.noted,
                   n.priorities, n.ready_ats
              INTO v_look FROM {ops}.look_past_notes(p_labels, p_projects, v_began, v_now) n;
        END IF;
        v_took := clock_timestamp() - v_began;
        IF v_took > interval '3 milliseconds' AND NOT v_slow THEN
            -- Perhaps it was only planned, or the processor was with somebody else. A look that reads past the dead
            -- takes as long again.
            v_slow := true;
            CONTINUE;
        END IF;
        v_first := false;

        IF v_look.asked_before THEN
            RETURN QUERY
                SELECT r.run_id, r.project_id, r.env_id, r.git_sha, r.git_ref, r.metadata,
                       r.epoch, r.attempt, r.timeout_secs, r.lease_until
                  FROM {ops}.runs r
                 WHERE r.claimed_by = p_worker_id AND r.claim_request = p_request_id
                   AND r.finished_at IS NULL;
            RETURN;
        ELSIF v_look.stays_out = 'ended' THEN
            RAISE EXCEPTION 'worker % was found dead, and its runs were given to others', p_worker_id
                USING ERRCODE = 'TM005', HINT = 'Stop what it runs, and register anew.';
        ELSIF v_look.stays_out = 'draining' THEN
            -- Nothing new. What it was given before under this request id was its answer above.
            RETURN;
        ELSIF v_look.any_due THEN
            -- What has become ready may come first: look again.
            PERFORM {ops}.open_due({batch_max}, v_now);
            CONTINUE;
        END IF;

        FOR v_place IN 1 .. coalesce(cardinality(v_look.shelf_ids), 0) LOOP
            v_shelf := v_look.shelf_ids[v_place];
            v_rank := v_look.priorities[v_place];
            v_since := v_look.ready_ats[v_place];
            v_last := CASE WHEN NOT v_whole AND v_rank = v_look.priorities[v_place + 1]
                           THEN v_look.ready_ats[v_place + 1] ELSE 'infinity' END;
            IF v_took > interval '3 milliseconds' AND v_look.noted[v_place] IS NOT TRUE THEN
                UPDATE {ops}.shelves
                   SET scan_priority = v_rank, scan_ready_at = v_since,
                       scan_until = clock_timestamp() + least(greatest(v_took * 20, '100 ms'), '1 s')
                 WHERE shelf_id = (SELECT s.shelf_id FROM {ops}.shelves s
                                    WHERE s.shelf_id = v_shelf FOR UPDATE SKIP LOCKED);
            END IF;
            -- Of this shelf and priority, from its head on, as far as no other shelf comes first. By their place in the
            -- table, which does not change while they are locked: a second search by id would cost as much again.
            RETURN QUERY
                WITH claimed AS (
                    UPDATE {ops}.runs r
                       SET status = 'claimed', gate = NULL, claimed_by = p_worker_id, worker_id = p_worker,
                           claim_request = p_request_id, epoch = least(r.epoch, 2147483646) + 1, started_at = v_now,
                           lease_secs = v_lease_secs, lease_until = v_until, attention_at = v_until,
                           last_seq = r.last_seq + 1, updated_at = v_now
                     WHERE r.ctid = ANY (ARRAY(
                        SELECT q.ctid FROM {ops}.runs q
                         WHERE q.shelf_id = v_shelf AND q.gate = 'open'
                           AND q.priority = v_rank AND q.ready_at >= v_since AND q.ready_at <= v_last
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
            GET DIAGNOSTICS v_taken = ROW_COUNT;
            EXIT WHEN v_taken > 0;
        END LOOP;
        v_left := v_left - v_taken;
        EXIT WHEN v_left = 0;
        IF v_taken = 0 THEN
            -- Nothing, or what comes first is being claimed by others. A noted start may hide what is older, and
            -- the order between shelves what comes later: look once more without either.
            EXIT WHEN v_whole OR v_look.shelf_ids IS NULL AND v_look.any_noted IS NOT TRUE;
            v_whole := true;
        END IF;
    END LOOP;
END
$$;

-- The heads of the shelves that fit, in order, beginning where the notes say. Higher priorities are always searched
-- from their beginning.
CREATE FUNCTION {ops}.look_past_notes(p_labels text[], p_projects text[], p_began timestamptz, p_now timestamptz)
RETURNS TABLE (shelf_ids integer[], noted boolean[], priorities integer[], ready_ats timestamptz[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT array_agg(h.shelf_id), array_agg(h.noted), array_agg(h.priority), array_agg(h.ready_at)
          FROM (SELECT s.shelf_id, scan.noted, head.priority, head.ready_at
                  FROM {ops}.shelves s
                 CROSS JOIN LATERAL (SELECT coalesce(s.scan_until > p_began, false) AS noted) scan
                 CROSS JOIN LATERAL (
                    (SELECT r.priority, r.ready_at FROM {ops}.runs r
                      WHERE r.shelf_id = s.shelf_id AND r.gate = 'open'
                        AND r.priority > CASE WHEN scan.noted THEN s.scan_priority ELSE -{priority_max} - 1 END
                      ORDER BY r.priority DESC, r.ready_at LIMIT 1)
                    UNION ALL
                    (SELECT r.priority, r.ready_at FROM {ops}.runs r
                      WHERE scan.noted AND r.shelf_id = s.shelf_id AND r.gate = 'open'
                        AND r.priority = s.scan_priority AND r.ready_at >= s.scan_ready_at
                      ORDER BY r.priority DESC, r.ready_at LIMIT 1)
                    UNION ALL
                    (SELECT r.priority, r.ready_at FROM {ops}.runs r
                      WHERE scan.noted AND r.shelf_id = s.shelf_id AND r.gate = 'open'
                        AND r.priority < s.scan_priority
                      ORDER BY r.priority DESC, r.ready_at LIMIT 1)
                    LIMIT 1) head
                 WHERE s.labels <@ p_labels
                   AND (p_projects IS NULL OR s.project_id = ANY (p_projects))
                   AND NOT EXISTS (SELECT FROM {ops}.flags f
                                    WHERE f.flag = 'paused'
                                      AND f.scope IN (CASE WHEN '{sync_label}' = ANY (s.labels) THEN 'lane:sync'
                                                           ELSE 'lane:ops' END, 'project:' || s.project_id)
                                      AND (f.until_at IS NULL OR f.until_at > p_now))
                 ORDER BY head.priority DESC, head.ready_at) h;
END
$$;
