-- Renews the lease of one run, and returns whether it has to stop. FOR NO KEY UPDATE does not wait for a transaction
-- that lease_guard protects.
CREATE FUNCTION {ops}.heartbeat(p_run_id text, p_worker_id text DEFAULT NULL, p_epoch integer DEFAULT NULL,
                                p_now timestamptz DEFAULT NULL)
RETURNS TABLE (held boolean, cancel_requested boolean, lease_until timestamptz)
LANGUAGE plpgsql {verb} AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {call_time};
    run   record;
BEGIN
    SELECT r.status, r.epoch, r.claimed_by, r.cancel_requested_at INTO run FROM {ops}.runs r
     WHERE r.run_id = p_run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_run_id);
    ELSIF NOT {caller_holds_run} THEN
        PERFORM {ops}.record_refusal(p_run_id, 'heartbeat', run.epoch, p_worker_id, v_now);
        RETURN QUERY SELECT false, run.cancel_requested_at IS NOT NULL, NULL::timestamptz;
        RETURN;
    END IF;
    RETURN QUERY
        UPDATE {ops}.runs r
           -- A heartbeat promises more of them: from now on, silence means that the worker is lost.
           SET lease_until = v_now + make_interval(secs => coalesce(r.lease_secs, {lease_secs})),
               lease_secs = coalesce(r.lease_secs, {lease_secs}), stalled_at = NULL, updated_at = v_now
         WHERE r.run_id = p_run_id
        RETURNING true, r.cancel_requested_at IS NOT NULL, r.lease_until;
END
$$;

-- Aborts the caller's transaction unless it still holds the run, and blocks every session that would take the lease
-- away until that transaction ends. An expired lease is valid until it is taken.
CREATE FUNCTION {ops}.lease_guard(p_run_id text, p_epoch integer DEFAULT NULL)
RETURNS void LANGUAGE plpgsql {verb} AS $$
DECLARE
    run         record;
    -- The caller is known by its epoch only.
    p_worker_id CONSTANT text := NULL;
BEGIN
    SELECT r.status, r.epoch, r.claimed_by INTO run FROM {ops}.runs r WHERE r.run_id = p_run_id FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_run_id);
    ELSIF NOT {caller_holds_run} THEN
        RAISE EXCEPTION 'the lease on run % is lost: the run is %', p_run_id, run.status USING ERRCODE = 'TM005',
            HINT = 'Stop, and write nothing more for this run.';
    END IF;
END
$$;

-- Registers a worker process. A repeated call changes nothing.
CREATE FUNCTION {ops}.register_worker(p_worker uuid, p_name text, p_host text, p_pid bigint, p_labels text[],
                                      p_version text, p_now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql {verb} AS $$
DECLARE
    v_now timestamptz := {call_time};
BEGIN
    PERFORM {ops}.check_line('p_name', p_name), {ops}.check_line('p_host', p_host),
            {ops}.check_line('p_version', p_version), {ops}.check_labels(p_labels);
    INSERT INTO {ops}.workers AS w (worker_id, name, host, pid, labels, version, started_at, beat_at)
    VALUES (p_worker, p_name, p_host, p_pid, p_labels, p_version, v_now, v_now)
    ON CONFLICT (worker_id) DO NOTHING;
END
$$;

-- Records the heartbeat of a worker process, renews the leases of its runs, and returns which of them have to stop. It
-- never waits for a run. Another transaction may have locked the row, such as one in which the run's own command
-- appends an event. Then the run is recorded in locked_runs instead, and the sweeper treats its lease as renewed.
CREATE FUNCTION {ops}.beat_worker(p_worker uuid, p_run_ids text[], p_now timestamptz DEFAULT NULL)
RETURNS TABLE (run_id text, held boolean, cancel_requested boolean, lease_until timestamptz)
LANGUAGE plpgsql {verb} SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := {call_time};
    v_locked text[];
BEGIN
    -- Renews a lease when a fifth of it is over: a heartbeat every few seconds need not rewrite every run.
    WITH due AS (
        SELECT r.run_id FROM {ops}.runs r
         WHERE r.run_id = ANY (p_run_ids) AND r.worker_id = p_worker AND r.status IN ('claimed', 'running')
           AND r.lease_until < v_now + make_interval(secs => r.lease_secs * 0.8)),
    free AS (
        SELECT r.run_id FROM {ops}.runs r WHERE r.run_id IN (SELECT d.run_id FROM due d)
           FOR NO KEY UPDATE SKIP LOCKED),
    renewed AS (
        UPDATE {ops}.runs r
           SET lease_until = v_now + make_interval(secs => r.lease_secs), updated_at = v_now
          FROM free f WHERE r.run_id = f.run_id)
    SELECT array_agg(d.run_id) INTO v_locked FROM due d WHERE d.run_id NOT IN (SELECT f.run_id FROM free f);
    UPDATE {ops}.workers SET beat_at = greatest(beat_at, v_now), locked_runs = v_locked
     WHERE worker_id = p_worker AND ended_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'worker % was declared dead, and its runs were given to other workers', p_worker
            USING ERRCODE = 'TM005', HINT = 'Stop its commands, and register again.';
    END IF;
    RETURN QUERY
        SELECT a.id, coalesce(r.status IN ('claimed', 'running') AND r.worker_id = p_worker, false),
               r.cancel_requested_at IS NOT NULL,
               -- The sweeper treats a locked run as renewed, so its worker may do so too.
               CASE WHEN a.id = ANY (v_locked) THEN v_now + make_interval(secs => r.lease_secs) ELSE r.lease_until END
          FROM unnest(p_run_ids) a (id) LEFT JOIN {ops}.runs r ON r.run_id = a.id;
END
$$;

-- Whether a worker process drains: it finishes its runs and gets no new ones.
CREATE FUNCTION {ops}.is_draining(p_worker uuid)
RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM {ops}.workers w WHERE w.worker_id = p_worker AND w.ended_at IS NULL AND w.draining)
$$;

-- Declares whether a worker waits for a wake-up.
CREATE FUNCTION {ops}.declare_waiting(p_worker uuid, p_waiting boolean)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE {ops}.workers SET waiting = p_waiting WHERE worker_id = p_worker AND waiting <> p_waiting
$$;

-- Ends a worker process. The next sweep takes the runs that it still holds for lost.
CREATE FUNCTION {ops}.retire_worker(p_worker uuid, p_now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql {verb} AS $$
DECLARE
    v_now timestamptz := {call_time};
BEGIN
    UPDATE {ops}.workers SET ended_at = v_now, end_cause = 'stopped', waiting = false
     WHERE worker_id = p_worker AND ended_at IS NULL;
END
$$;
