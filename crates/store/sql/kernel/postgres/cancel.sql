-- Requests of operators: cancel, retry and fail, and the artifacts of a run.

-- Writes the audit entry of a call by SQL that changed a run. The actor is the user who logged in.
--
-- With p_audited, the caller writes an entry of its own in this transaction. Only users who may write the log can pass
-- it: a worker role cannot avoid its entry.
CREATE FUNCTION {ops}.audit_call(p_action text, p_run_id text, p_by text, p_detail jsonb, p_audited boolean,
                                 p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    -- A login that does not inherit the rights of its roles can take them on with SET ROLE.
    v_may_write boolean := (SELECT has_table_privilege(session_user, c.oid, 'INSERT')
                                   OR pg_has_role(session_user, c.relowner, 'MEMBER')
                              FROM pg_class c WHERE c.oid = '{ops}.audit'::regclass);
BEGIN
    IF p_audited AND v_may_write THEN
        RETURN;
    END IF;
    INSERT INTO {ops}.audit (at, call_id, who, role, action, subject, project_id, detail, source)
    SELECT p_now, gen_random_uuid(), session_user, CASE WHEN v_may_write THEN 'admin' ELSE 'worker' END, p_action,
           r.run_id, r.project_id,
           jsonb_strip_nulls(p_detail || jsonb_build_object('by', nullif(left(p_by, 256), session_user))), 'sql'
      FROM {ops}.runs r WHERE r.run_id = p_run_id;
END
$$;

-- Writes the audit entry of a run that finish_run cancelled, unless the call is the report of its holder: then the
-- caller names worker and epoch, or the cancel was requested before.
CREATE FUNCTION {ops}.audit_unclaimed_cancel(p_run_id text, p_worker_id text, p_epoch integer, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {ops}.audit_call('runs.cancel', p_run_id, p_worker_id, jsonb_build_object('function', 'finish_run'), false,
                             p_now)
       FROM {ops}.runs r
      WHERE r.run_id = p_run_id AND r.cancel_requested_at IS NULL
        AND (r.claimed_by = p_worker_id AND r.epoch = p_epoch) IS NOT TRUE;
END
$$;

-- Requests a cancel of every live job of a graph, and informs the controller. Returns whether this call changed
-- anything: a repeated call does not.
CREATE FUNCTION {ops}.cancel_graph(p_run_id text, p_by text, p_reason text, p_now timestamptz)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {ops}.jobs SET cancelled_at = p_now, cancelled_by = p_by
     WHERE job_id IN (SELECT j.job_id FROM {ops}.jobs j
                       WHERE j.run_id = p_run_id AND j.ended_at IS NULL AND j.cancelled_at IS NULL
                       ORDER BY j.job_id FOR NO KEY UPDATE);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE {ops}.graphs SET cancelled_at = p_now, cancelled_by = p_by, cancel_reason = p_reason
     WHERE run_id = p_run_id AND cancelled_at IS NULL;
    PERFORM {ops}.write_event(p_run_id, 'request', 'warn', 'Cancel requested',
        jsonb_strip_nulls(jsonb_build_object('by', p_by, 'reason', p_reason)), NULL, NULL, p_now);
    -- Last, in the lock order of the controller: jobs, runs, changes.
    INSERT INTO {ops}.job_changes AS c (subject, version) VALUES (p_run_id, 1)
    ON CONFLICT (subject) DO UPDATE SET version = c.version + 1;
    RETURN true;
END
$$;

-- Cancels a queued run at once, and requests the worker of a held run to stop. Returns cancelled, requested, or ended
-- if the run has ended. The controller stops a graph job by job.
CREATE FUNCTION {ops}.cancel_run(p_run_id text, p_by text DEFAULT session_user, p_reason text DEFAULT NULL,
                                 p_now timestamptz DEFAULT NULL, p_audited boolean DEFAULT false)
RETURNS text LANGUAGE plpgsql {verb} AS $$
DECLARE
    v_now timestamptz := {call_time};
    v_run record;
    v_seq integer;
    v_outcome text := 'requested';
BEGIN
    PERFORM {ops}.check_line('p_by', p_by), {ops}.check_text('p_reason', p_reason);
    IF EXISTS (SELECT FROM {ops}.runs r WHERE r.run_id = p_run_id AND r.lane = 'graph') THEN
        -- Jobs before their run, in the lock order of the controller.
        PERFORM FROM {ops}.jobs j WHERE j.run_id = p_run_id AND j.ended_at IS NULL
          ORDER BY j.job_id FOR NO KEY UPDATE;
    END IF;
    SELECT r.status, r.lane, r.cancel_requested_at INTO v_run FROM {ops}.runs r
     WHERE r.run_id = p_run_id FOR NO KEY UPDATE;
    -- The grace period begins when the row is locked, not when the wait for the lock began.
    v_now := coalesce(p_now, clock_timestamp());
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_run_id);
    ELSIF v_run.lane = 'graph' AND v_run.status IN ('queued', 'claimed', 'running') THEN
        IF NOT {ops}.cancel_graph(p_run_id, p_by, p_reason, v_now) THEN
            RETURN v_outcome;
        END IF;
    ELSIF v_run.status = 'queued' THEN
        UPDATE {ops}.runs r
           SET status = 'cancelled', gate = NULL, finished_at = v_now, updated_at = v_now,
               end_cause = 'cancelled', cancel_requested_at = v_now, cancel_requested_by = p_by,
               cancel_reason = p_reason, input = coalesce(r.input, r.metadata),
               metadata = r.metadata || jsonb_strip_nulls(
                   jsonb_build_object('cancelled_by', p_by, 'reason', p_reason)),
               attention_at = NULL, last_seq = r.last_seq + 1
         WHERE r.run_id = p_run_id
        RETURNING r.last_seq INTO v_seq;
        PERFORM {ops}.record_step(p_run_id, v_seq, 'queued', 'cancelled', NULL, 'cancelled', v_now);
        PERFORM {ops}.record_end(r) FROM {ops}.runs r WHERE r.run_id = p_run_id;
        v_outcome := 'cancelled';
    ELSIF v_run.status NOT IN ('claimed', 'running') THEN
        RETURN 'ended';
    ELSIF v_run.cancel_requested_at IS NULL THEN
        UPDATE {ops}.runs
           SET cancel_requested_at = v_now, cancel_requested_by = p_by, cancel_reason = p_reason,
               cancel_deadline_at = v_now + make_interval(secs => {cancel_grace_secs}), updated_at = v_now
         WHERE run_id = p_run_id;
        PERFORM {ops}.write_event(p_run_id, 'request', 'warn', 'Cancel requested',
            jsonb_strip_nulls(jsonb_build_object('by', p_by, 'reason', p_reason)), NULL, NULL, v_now);
    ELSE
        RETURN v_outcome;
    END IF;
    PERFORM {ops}.audit_call('runs.cancel', p_run_id, p_by, jsonb_build_object('function', 'cancel_run'), p_audited,
                             v_now);
    RETURN v_outcome;
END
$$;

-- Queues a successor of a failed or cancelled run, with fresh budgets. A repeated call returns the same successor.
CREATE FUNCTION {ops}.retry_run(p_run_id text, p_by text DEFAULT session_user, p_now timestamptz DEFAULT NULL,
                                p_with_jobs boolean DEFAULT false, p_audited boolean DEFAULT false)
RETURNS TABLE (run_id text, created boolean)
LANGUAGE plpgsql {verb} AS $$
#variable_conflict use_column
DECLARE
    v_now  timestamptz := {call_time};
    v_run  record;
    v_next text;
BEGIN
    PERFORM {ops}.check_line('p_by', p_by);
    SELECT r.status, r.lane INTO v_run FROM {ops}.runs r WHERE r.run_id = p_run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_run_id);
    ELSIF v_run.lane = 'graph' AND NOT p_with_jobs THEN
        -- A successor without jobs would wait forever.
        RAISE EXCEPTION 'run % is a graph and must be retried with its jobs', p_run_id
            USING ERRCODE = 'TM009', HINT = format('Run `tidemill graph retry %s`.', p_run_id);
    END IF;
    v_next := {ops}.successor_of(p_run_id);
    IF v_next IS NOT NULL THEN
        RETURN QUERY SELECT v_next, false;
        RETURN;
    ELSIF v_run.status NOT IN ('failed', 'cancelled') THEN
        RAISE EXCEPTION 'run % is %, and only a failed or cancelled run can be retried', p_run_id, v_run.status
            USING ERRCODE = 'TM009';
    END IF;
    v_next := {ops}.follow_run(p_run_id, 0, 0, NULL, v_now);
    PERFORM {ops}.write_event(p_run_id, 'request', 'info', 'Retry requested',
        jsonb_strip_nulls(jsonb_build_object('by', p_by, 'successor', v_next)), NULL, NULL, v_now);
    PERFORM {ops}.audit_call('runs.retry', p_run_id, p_by,
        jsonb_build_object('function', 'retry_run', 'successor', v_next), p_audited, v_now);
    RETURN QUERY SELECT v_next, true;
END
$$;

-- Records an artifact of a run. The same type and URL is the same artifact.
CREATE FUNCTION {ops}.add_artifact(p_run_id text, p_type text, p_url text, p_digest text DEFAULT NULL,
    p_size_bytes bigint DEFAULT NULL, p_metadata jsonb DEFAULT '{}'::jsonb, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql {verb} AS $$
DECLARE
    v_now timestamptz := {call_time};
BEGIN
    RETURN {ops}.put_artifact(p_run_id, p_type, p_url, p_digest, p_size_bytes, p_metadata, v_now);
END
$$;

CREATE FUNCTION {ops}.put_artifact(p_run_id text, p_type text, p_url text, p_digest text, p_size_bytes bigint,
                                   p_metadata jsonb, p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_id text;
BEGIN
    IF NOT EXISTS (SELECT FROM {ops}.runs r WHERE r.run_id = p_run_id) THEN
        PERFORM {ops}.refuse_run(p_run_id);
    ELSIF coalesce(p_type, '') = '' OR coalesce(p_url, '') = '' OR p_size_bytes < 0 THEN
        RAISE EXCEPTION 'artifact type and URL are required, and the size must not be negative' USING ERRCODE = 'TM006';
    ELSIF octet_length(p_type) > 64 OR octet_length(p_url) > {key_max} OR octet_length(p_digest) > 256
       OR octet_length(p_metadata::text) > {payload_max} THEN
        RAISE EXCEPTION 'the artifact is too large: type 64, URL % and metadata % bytes at most',
            {key_max}, {payload_max} USING ERRCODE = 'TM007';
    ELSIF concat(p_type, p_url, p_digest) ~ {control} THEN
        RAISE EXCEPTION 'type, URL and digest of an artifact must not contain control characters'
            USING ERRCODE = 'TM006';
    END IF;
    PERFORM {ops}.check_document('metadata', p_metadata, {payload_max});
    INSERT INTO {ops}.artifacts AS a (artifact_id, run_id, artifact_type, url, digest, size_bytes, metadata,
                                      created_at)
    VALUES ('art-' || gen_random_uuid(), p_run_id, p_type, p_url, p_digest, p_size_bytes, p_metadata, p_now)
    ON CONFLICT (run_id, artifact_type, url) DO UPDATE
        SET digest = coalesce(excluded.digest, a.digest), size_bytes = coalesce(excluded.size_bytes, a.size_bytes)
    RETURNING a.artifact_id INTO v_id;
    RETURN v_id;
END
$$;

-- Fails a stalled run for an operator who knows that its worker is gone. With p_retry, queues a successor. A repeated
-- call returns the same. A run that is not stalled belongs to its worker, which cancel_run requests to stop.
CREATE FUNCTION {ops}.fail_run(p_run_id text, p_by text DEFAULT session_user, p_reason text DEFAULT NULL,
                               p_retry boolean DEFAULT false, p_now timestamptz DEFAULT NULL,
                               p_audited boolean DEFAULT false)
RETURNS TABLE (outcome text, successor text)
LANGUAGE plpgsql {verb} AS $$
#variable_conflict use_column
DECLARE
    v_now  timestamptz := {call_time};
    v_run  record;
    v_next text;
    v_before text;
    v_outcome text;
BEGIN
    PERFORM {ops}.check_line('p_by', p_by), {ops}.check_text('p_reason', p_reason);
    -- This takes the run away from its worker: wait for transactions that lease_guard protects.
    SELECT r.status, r.stalled_at, r.claimed_by, r.end_cause INTO v_run
      FROM {ops}.runs r WHERE r.run_id = p_run_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_run_id);
    ELSIF v_run.status = 'running' AND v_run.stalled_at IS NOT NULL THEN
        PERFORM {ops}.end_run(p_run_id, 'failed', 'lost', jsonb_strip_nulls(jsonb_build_object(
            'error', 'worker lost', 'original_worker', v_run.claimed_by, 'failed_by', p_by,
            'reason', p_reason)), v_now);
        v_outcome := 'applied';
    ELSIF v_run.status = 'failed' AND v_run.stalled_at IS NOT NULL AND v_run.end_cause = 'lost' THEN
        v_outcome := 'duplicate';
    ELSE
        RAISE EXCEPTION 'run % is %, and not stalled', p_run_id, v_run.status USING ERRCODE = 'TM009',
            HINT = format('Run `tidemill run cancel %s` to stop it.', p_run_id);
    END IF;
    v_before := {ops}.successor_of(p_run_id);
    v_next := CASE WHEN p_retry THEN {ops}.follow_run(p_run_id, 0, 0, NULL, v_now) ELSE v_before END;
    IF v_outcome = 'applied' OR v_next IS DISTINCT FROM v_before THEN
        PERFORM {ops}.audit_call('runs.fail', p_run_id, p_by,
            jsonb_build_object('function', 'fail_run', 'successor', v_next), p_audited, v_now);
    END IF;
    RETURN QUERY SELECT v_outcome, v_next;
END
$$;
