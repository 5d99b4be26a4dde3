-- Claims runs: of every shelf that fits, the highest priority first, then the oldest. Asked again with the same
-- request id, it returns the same runs.
--
-- While a long transaction keeps old row versions alive, the head of the index fills with entries of runs that
-- were claimed long ago, and each claim would read past all of them. A claim that notices this (the search took
-- long) notes on the shelf where the living begin; for a short time others start there.
CREATE FUNCTION {ops}.claim_next_run(
    p_worker_id  text,
    p_limit      integer DEFAULT 1,
    p_labels     text[] DEFAULT '{}',
    p_projects   text[] DEFAULT NULL,
    p_worker     uuid DEFAULT NULL,
    p_request_id text DEFAULT NULL,
    p_lease_secs integer DEFAULT {lease_secs},
    p_now        timestamptz DEFAULT NULL)
RETURNS TABLE (run_id text, project_id text, env_id text, git_sha text, git_ref text, metadata jsonb,
               epoch integer, attempt integer, timeout_secs integer, lease_until timestamptz)
LANGUAGE plpgsql {verb} AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_left  integer := least(greatest(p_limit, 1), {batch_max});
    v_head  record;
    v_taken integer;
    v_any   boolean;
    v_whole boolean := false;
    v_began timestamptz;
    v_took  interval;
BEGIN
    IF p_worker_id IS NULL OR p_worker_id = '' THEN
        RAISE EXCEPTION 'a worker claims under a name' USING ERRCODE = 'TM006';
    ELSIF p_lease_secs NOT BETWEEN 1 AND 86400 OR p_lease_secs IS NULL THEN
        RAISE EXCEPTION 'a lease lasts between 1 and 86400 seconds' USING ERRCODE = 'TM006';
    END IF;
    IF p_request_id IS NOT NULL THEN
        RETURN QUERY
            SELECT r.run_id, r.project_id, r.env_id, r.git_sha, r.git_ref, r.metadata,
                   r.epoch, r.attempt, r.timeout_secs, r.lease_until
              FROM {ops}.runs r
             WHERE r.claimed_by = p_worker_id AND r.status IN ('claimed', 'running')
               AND r.claim_request = p_request_id;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF p_worker IS NOT NULL
       AND EXISTS (SELECT FROM {ops}.workers w WHERE w.worker_id = p_worker AND w.ended_at IS NOT NULL) THEN
        RAISE EXCEPTION 'worker % was found dead, and its runs were given to others', p_worker_id
            USING ERRCODE = 'TM005', HINT = 'Stop what it runs, and register anew.';
    END IF;
    IF EXISTS (SELECT FROM {ops}.runs r WHERE r.gate = 'time' AND r.available_at <= v_now) THEN
        PERFORM {ops}.open_due({batch_max}, v_now);
    END IF;

    LOOP
        v_any := false;
        v_taken := 0;
        v_began := clock_timestamp();
        FOR v_head IN
            SELECT s.shelf_id, s.scan_until > v_began AND NOT v_whole AS noted, h.priority, h.ready_at,
                   lead(h.priority) OVER in_order AS next_priority,
                   lead(h.ready_at) OVER in_order AS next_ready_at
              FROM {ops}.shelves s
             CROSS JOIN LATERAL (
                SELECT CASE WHEN s.scan_until > v_began AND NOT v_whole THEN s.scan_priority ELSE 2147483647 END
                           AS priority,
                       s.scan_ready_at AS ready_at) scan
             CROSS JOIN LATERAL (
                (SELECT r.priority, r.ready_at FROM {ops}.runs r
                  WHERE r.shelf_id = s.shelf_id AND r.gate = 'open' AND r.priority > scan.priority
                  ORDER BY r.priority DESC, r.ready_at LIMIT 1)
                UNION ALL
                (SELECT r.priority, r.ready_at FROM {ops}.runs r
                  WHERE r.shelf_id = s.shelf_id AND r.gate = 'open'
                    AND r.priority = scan.priority AND r.ready_at >= scan.ready_at
                  ORDER BY r.priority DESC, r.ready_at LIMIT 1)
                UNION ALL
                (SELECT r.priority, r.ready_at FROM {ops}.runs r
                  WHERE r.shelf_id = s.shelf_id AND r.gate = 'open' AND r.priority < scan.priority
                  ORDER BY r.priority DESC, r.ready_at LIMIT 1)
                LIMIT 1) h
             WHERE s.labels <@ p_labels
               AND (p_projects IS NULL OR s.project_id = ANY (p_projects))
               AND NOT EXISTS (SELECT FROM {ops}.flags f
                                WHERE f.flag = 'paused' AND f.scope IN ('lane:ops', 'project:' || s.project_id)
                                  AND (f.until_at IS NULL OR f.until_at > v_now))
            WINDOW in_order AS (ORDER BY h.priority DESC, h.ready_at)
            ORDER BY h.priority DESC, h.ready_at
        LOOP
            v_any := true;
            v_took := clock_timestamp() - v_began;
            IF v_took > interval '3 milliseconds' AND NOT v_head.noted THEN
                UPDATE {ops}.shelves
                   SET scan_priority = v_head.priority, scan_ready_at = v_head.ready_at,
                       scan_until = clock_timestamp() + least(greatest(v_took * 20, '100 ms'), '1 s')
                 WHERE shelf_id = (SELECT s.shelf_id FROM {ops}.shelves s
                                    WHERE s.shelf_id = v_head.shelf_id FOR UPDATE SKIP LOCKED);
            END IF;
            -- Of this shelf and priority, from its head on, as far as no other shelf comes first.
            RETURN QUERY
                WITH picked AS MATERIALIZED (
                    SELECT r.run_id FROM {ops}.runs r
                     WHERE r.shelf_id = v_head.shelf_id AND r.gate = 'open'
                       AND r.priority = v_head.priority AND r.ready_at >= v_head.ready_at
                       AND (v_whole OR v_head.next_priority IS NULL OR v_head.priority > v_head.next_priority
                            OR r.ready_at <= v_head.next_ready_at)
                     ORDER BY r.priority DESC, r.ready_at, r.run_id LIMIT v_left
                       FOR UPDATE SKIP LOCKED)
                UPDATE {ops}.runs r
                   SET status = 'claimed', gate = NULL, claimed_by = p_worker_id, worker_id = p_worker,
                       claim_request = p_request_id, epoch = r.epoch + 1, started_at = v_now,
                       lease_secs = p_lease_secs, lease_until = v_now + make_interval(secs => p_lease_secs),
                       updated_at = v_now
                  FROM picked WHERE r.run_id = picked.run_id
                RETURNING r.run_id, r.project_id, r.env_id, r.git_sha, r.git_ref, r.metadata,
                          r.epoch, r.attempt, r.timeout_secs, r.lease_until;
            GET DIAGNOSTICS v_taken = ROW_COUNT;
            EXIT WHEN v_taken > 0;
        END LOOP;
        v_left := v_left - v_taken;
        EXIT WHEN v_left = 0;
        IF v_taken = 0 THEN
            -- Nothing, or what comes first is being claimed by others. A noted start may hide what is older, and
            -- the order between shelves what comes later: look once more without either.
            EXIT WHEN v_whole OR NOT (v_any OR EXISTS (SELECT FROM {ops}.shelves s WHERE s.scan_until > v_began));
            v_whole := true;
        END IF;
    END LOOP;
END
$$;
