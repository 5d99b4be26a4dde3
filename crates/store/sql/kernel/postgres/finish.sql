-- The successor of a run, or NULL.
CREATE FUNCTION {ops}.successor_of(p_run_id text)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT k.run_id FROM {ops}.run_lookup k WHERE k.kind = 'retry_of' AND k.value = p_run_id);
END
$$;

-- Queues the successor of an ended run. There is at most one: a repeated call returns it.
CREATE FUNCTION {ops}.follow_run(p_run_id text, p_failures integer, p_losses integer,
                                 p_available_at timestamptz, p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_run  {ops}.runs%ROWTYPE;
    v_next text := {ops}.new_run_id(p_now);
    v_gate text := 'open';
    v_id   text;
    v_ready timestamptz;
BEGIN
    v_id := {ops}.successor_of(p_run_id);
    IF v_id IS NOT NULL THEN
        RETURN v_id;
    END IF;
    SELECT * INTO v_run FROM {ops}.runs r WHERE r.run_id = p_run_id;
    -- A successor keeps the position of its request in the concurrency key, also during its back-off: a second deploy
    -- must not overtake the retry of the first.
    v_ready := CASE WHEN v_run.concurrency_key IS NULL THEN greatest(p_now, p_available_at) ELSE v_run.ready_at END;
    IF v_run.concurrency_key IS NOT NULL THEN
        v_gate := {ops}.enter_key(v_next, v_run.project_id, v_run.concurrency_key, v_run.priority, v_ready, true);
    END IF;
    IF p_available_at > p_now THEN
        v_gate := 'time';
    END IF;
    INSERT INTO {ops}.runs (run_id, project_id, env_id, lane, kind, git_sha, git_ref, metadata, priority, label_set_id,
        concurrency_key, gate, ready_at, available_at, attention_at, timeout_secs, attempt, failures, losses,
        max_attempts, max_losses, backoff_secs, retry_of, last_seq, queued_at, created_at, updated_at)
    VALUES (v_next, v_run.project_id, v_run.env_id, v_run.lane, v_run.kind, v_run.git_sha, v_run.git_ref,
        coalesce(v_run.input, v_run.metadata), v_run.priority, v_run.label_set_id, v_run.concurrency_key, v_gate,
        v_ready, p_available_at, CASE v_gate WHEN 'time' THEN p_available_at END,
        v_run.timeout_secs, v_run.attempt + 1, p_failures, p_losses, v_run.max_attempts, v_run.max_losses,
        v_run.backoff_secs, p_run_id, 1, p_now, p_now, p_now);
    INSERT INTO {ops}.run_steps (created_at, seq, step, run_id, detail, env_id)
    VALUES (p_now, 1, 'q', v_next,
            jsonb_build_object('to', 'queued', 'retry_of', p_run_id, 'attempt', v_run.attempt + 1), v_run.env_id);
    RETURN v_next;
END
$$;

-- The back-off after p_failures failures: base times a power of two, at most an hour, plus or minus a fifth. The jitter
-- depends on the run's id, so that it can be computed again; the arithmetic is integer, so that Rust gets the same
-- microsecond.
CREATE FUNCTION {ops}.backoff(p_base integer, p_failures integer, p_run_id text)
RETURNS interval LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_secs bigint := least(p_base::bigint << least(p_failures, 20), {backoff_max});
    v_part bigint := CASE WHEN right(p_run_id, 4) ~ '^[0-9a-f]{4}$'
                          THEN ('x' || right(p_run_id, 4))::bit(16)::integer ELSE 32768 END;
BEGIN
    RETURN (v_secs * 800000 + v_secs * 400000 * v_part / 65536) * interval '1 microsecond';
END
$$;

-- Finishes one run, and returns applied, duplicate or stale. finish_runs would cost a sixth more.
CREATE FUNCTION {ops}.finish_one(p_run_id text, p_status text, p_metadata jsonb, p_worker_id text, p_epoch integer,
                                 p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
-- `run` is a row of the table in a statement, and the record of that name elsewhere.
#variable_conflict use_column
DECLARE
    v_now timestamptz := {call_time};
    run   record;
    v_seq integer;
    -- A claimed run that is finished passes through running.
    v_passes boolean;
    v_cause  text := CASE WHEN p_status = 'cancelled' THEN 'cancelled' ELSE 'reported' END;
    v_text   text := p_metadata::text;
    v_outcome text;
BEGIN
    IF p_status IN ('success', 'failed', 'cancelled') IS NOT TRUE THEN
        PERFORM {ops}.refuse_final_status(p_status);
    ELSIF jsonb_typeof(p_metadata) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'metadata must be a JSON object' USING ERRCODE = 'TM006';
    ELSIF octet_length(v_text) > 16 AND (octet_length(v_text) > {metadata_max}
                                         OR {ops}.json_problem(p_metadata, v_text) IS NOT NULL) THEN
        PERFORM {ops}.check_document('metadata', p_metadata, {metadata_max});
    END IF;
    -- The usual case is one statement: the holder reports the end of a running run. If it changes no row, find out why.
    IF p_status <> 'cancelled' THEN
        {finish_running};
        IF v_outcome = 'oversize' THEN
            RAISE EXCEPTION 'the merged metadata is larger than % bytes', {metadata_max} USING ERRCODE = 'TM007';
        ELSIF v_outcome IS NOT NULL THEN
            IF v_outcome = 'sequel' THEN
                PERFORM {ops}.after_finish(p_run_id, v_now);
            END IF;
            RETURN 'applied';
        END IF;
    END IF;
    IF p_status = 'cancelled' THEN
        SELECT r.lane, r.finished_at INTO run FROM {ops}.runs r WHERE r.run_id = p_run_id;
        IF run.lane <> 'ops' AND run.finished_at IS NULL THEN
            -- Before the row is locked: jobs are locked before their run.
            RETURN {ops}.finish_other_lane(p_run_id, run.lane, p_status, p_metadata, p_worker_id, p_now);
        END IF;
        -- This may take the lease away from its holder: wait for transactions that lease_guard protects.
        PERFORM FROM {ops}.runs r WHERE r.run_id = p_run_id FOR UPDATE;
    END IF;
    SELECT r.status, r.lane, r.epoch, r.claimed_by, r.end_cause, r.metadata, r.failures, r.max_attempts INTO run
      FROM {ops}.runs r WHERE r.run_id = p_run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_run_id);
    ELSIF run.lane <> 'ops' AND run.status IN ('queued', 'claimed', 'running') THEN
        RETURN {ops}.finish_other_lane(p_run_id, run.lane, p_status, p_metadata, p_worker_id, p_now);
    ELSIF NOT {finish_allowed} THEN
        -- A repeated report, whose first answer was lost: from the holder, or a cancel from any caller.
        IF run.status = p_status AND run.end_cause IN ('reported', 'cancelled')
           AND (p_status = 'cancelled' OR {caller_is_holder})
           AND run.metadata @> p_metadata THEN
            RETURN 'duplicate';
        END IF;
        PERFORM {ops}.record_refusal(p_run_id, 'finish', run.epoch, p_worker_id, v_now);
        RETURN 'stale';
    END IF;
    IF octet_length(run.metadata::text) + octet_length(p_metadata::text) > {metadata_max} THEN
        IF octet_length((run.metadata || p_metadata)::text) > {metadata_max} THEN
            RAISE EXCEPTION 'the merged metadata is larger than % bytes', {metadata_max} USING ERRCODE = 'TM007';
        END IF;
    END IF;
    v_passes := run.status = 'claimed' AND p_status <> 'cancelled';
    UPDATE {ops}.runs r
       SET status = p_status, finished_at = v_now, updated_at = v_now, gate = NULL, end_cause = v_cause,
           input = CASE WHEN p_status = 'success' OR p_metadata = '{}'::jsonb THEN r.input
                        ELSE coalesce(r.input, r.metadata) END,
           metadata = r.metadata || p_metadata, attention_at = NULL,
           last_seq = r.last_seq + CASE WHEN v_passes THEN 2 ELSE 1 END
     WHERE r.run_id = p_run_id
    RETURNING r.last_seq INTO v_seq;
    IF v_passes THEN
        INSERT INTO {ops}.run_steps (created_at, seq, step, run_id)
        VALUES (v_now, v_seq, CASE p_status WHEN 'success' THEN 'S' ELSE 'F' END, p_run_id);
    ELSE
        PERFORM {ops}.record_step(p_run_id, v_seq, run.status, p_status, NULL, v_cause, v_now);
    END IF;
    PERFORM {ops}.after_finish(p_run_id, v_now);
    IF p_status = 'cancelled' THEN
        PERFORM {ops}.audit_unclaimed_cancel(p_run_id, p_worker_id, p_epoch, v_now);
    END IF;
    RETURN 'applied';
END
$$;

-- Finishes a run, and returns applied, duplicate or stale. Any caller may cancel.
CREATE FUNCTION {ops}.finish_run_outcome(
    p_run_id    text,
    p_status    text,
    p_metadata  jsonb DEFAULT '{}'::jsonb,
    p_worker_id text DEFAULT NULL,
    p_epoch     integer DEFAULT NULL,
    p_now       timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql {verb} AS $$
BEGIN
    RETURN {ops}.finish_one(p_run_id, p_status, p_metadata, p_worker_id, p_epoch, p_now);
END
$$;

-- Only the controller ends a graph, and the consolidator a sync: they know whether all parts have ended. This verb may
-- only request a cancel.
CREATE FUNCTION {ops}.finish_other_lane(p_run_id text, p_lane text, p_status text, p_metadata jsonb, p_worker_id text,
                                        p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF p_status <> 'cancelled' THEN
        RAISE EXCEPTION 'run % is a %, which ends when its parts have ended; it cannot be finished as %',
            p_run_id, p_lane, p_status USING ERRCODE = 'TM006', HINT = 'Use ops.cancel_run to stop it.';
    END IF;
    PERFORM {ops}.cancel_run(p_run_id, coalesce(p_worker_id, session_user::text), p_metadata ->> 'reason', p_now);
    RETURN 'applied';
END
$$;

-- Finishes several runs. Returns applied, duplicate or stale for each. Sequential scans are off, because a plan for
-- arrays that is made while the table is small would keep scanning it. The JIT compiler is off, because the cost
-- that this adds to a plan would make PostgreSQL compile it at every call, which takes longer than the call.
CREATE FUNCTION {ops}.finish_runs(
    p_run_ids   text[],
    p_statuses  text[],
    p_metadata  jsonb[],
    p_worker_id text DEFAULT NULL,
    p_epochs    integer[] DEFAULT NULL,
    p_now       timestamptz DEFAULT NULL)
RETURNS TABLE (run_id text, outcome text)
LANGUAGE plpgsql {verb} SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := {call_time};
    v_asked record;
    v_bad   text;
    v_ended record;
    v_sequel text;
BEGIN
    IF NOT p_statuses <@ ARRAY['success', 'failed', 'cancelled'] OR array_position(p_statuses, NULL) IS NOT NULL THEN
        SELECT s INTO v_bad FROM unnest(p_statuses) s
         WHERE s IS NULL OR s NOT IN ('success', 'failed', 'cancelled') LIMIT 1;
        PERFORM {ops}.refuse_final_status(v_bad);
    END IF;
    IF 'cancelled' = ANY (p_statuses) THEN
        -- This may take a lease away from its holder: wait for a transaction that lease_guard protects.
        PERFORM FROM {ops}.runs r WHERE r.run_id = ANY (p_run_ids) AND r.lane = 'ops' ORDER BY r.run_id FOR UPDATE;
    END IF;
    IF cardinality(p_run_ids) = 1 THEN
        run_id := p_run_ids[1];
        outcome := {ops}.finish_one(run_id, p_statuses[1], coalesce(p_metadata[1], '{}'::jsonb), p_worker_id,
                                            p_epochs[1], p_now);
        RETURN NEXT;
        RETURN;
    END IF;

    -- Locked in the order of their ids: callers that name the same runs in other orders must not deadlock.
    SELECT array_agg(x.status ORDER BY x.place) AS was, bool_and(x.ok) AS all_ok, count(DISTINCT x.id) AS runs,
           min(x.id) FILTER (WHERE x.status IS NULL) AS unknown, bool_or(x.is_no_object) AS is_no_object,
           bool_or(x.has_problem) AS has_problem, bool_or(x.has_key) AS has_key
      INTO v_asked
      -- The columns are named as the parameters of finish_one: both include the same condition.
      FROM (SELECT a.id, a.place, run.status, {finish_allowed} AND run.lane = 'ops' AS ok,
                   jsonb_typeof(a.given) <> 'object' AS is_no_object, run.concurrency_key IS NOT NULL AS has_key,
                   a.given <> '{}'::jsonb AND {ops}.json_problem(a.given, a.given::text) IS NOT NULL AS has_problem
              FROM unnest(p_run_ids, p_statuses, p_epochs, p_metadata)
                   WITH ORDINALITY a (id, p_status, p_epoch, given, place)
              LEFT JOIN (SELECT l.run_id, l.status, l.lane, l.epoch, l.claimed_by, l.concurrency_key
                           FROM {ops}.runs l WHERE l.run_id = ANY (p_run_ids) ORDER BY l.run_id
                            FOR NO KEY UPDATE) run ON run.run_id = a.id) x;
    IF v_asked.is_no_object THEN
        RAISE EXCEPTION 'metadata must be a JSON object' USING ERRCODE = 'TM006';
    ELSIF v_asked.has_problem THEN
        PERFORM {ops}.check_document('metadata', m, {metadata_max}) FROM unnest(p_metadata) m;
    ELSIF v_asked.unknown IS NOT NULL THEN
        PERFORM {ops}.refuse_run(v_asked.unknown);
    END IF;
    IF v_asked.has_key THEN
        -- Lock several keys in one order, before any of them is passed on.
        PERFORM FROM {ops}.concurrency_keys k
          WHERE (k.project_id, k.concurrency_key) IN (
              SELECT r.project_id, r.concurrency_key FROM {ops}.runs r
               WHERE r.run_id = ANY (p_run_ids) AND r.concurrency_key IS NOT NULL)
          ORDER BY k.project_id, k.concurrency_key FOR UPDATE;
    END IF;
    IF NOT v_asked.all_ok OR v_asked.runs < cardinality(p_run_ids) THEN
        -- Some runs are refused, have ended already, or are named twice: finish them one by one.
        FOR v_place IN 1 .. cardinality(p_run_ids) LOOP
            run_id := p_run_ids[v_place];
            outcome := {ops}.finish_one(run_id, p_statuses[v_place], coalesce(p_metadata[v_place], '{}'::jsonb),
                                                p_worker_id, p_epochs[v_place], p_now);
            RETURN NEXT;
        END LOOP;
        RETURN;
    END IF;

    -- A claimed run that is finished passes through running: one change of the row, and two events.
    WITH ended AS (
        UPDATE {ops}.runs r
           SET status = a.asked, finished_at = v_now, updated_at = v_now, gate = NULL,
               end_cause = CASE WHEN a.asked = 'cancelled' THEN 'cancelled' ELSE 'reported' END,
               input = CASE WHEN a.asked = 'success' OR a.metadata = '{}'::jsonb THEN r.input
                            ELSE coalesce(r.input, r.metadata) END,
               metadata = r.metadata || a.metadata, attention_at = NULL,
               last_seq = r.last_seq + CASE WHEN a.passes THEN 2 ELSE 1 END
          FROM (SELECT x.id, x.asked, coalesce(x.given, '{}'::jsonb) AS metadata,
                       x.was = 'claimed' AND x.asked <> 'cancelled' AS passes,
                       CASE WHEN x.was = 'claimed' AND x.asked <> 'cancelled' THEN 'running' ELSE x.was END AS was
                  FROM unnest(p_run_ids, p_statuses, p_metadata, v_asked.was) x (id, asked, given, was)) a
         WHERE r.run_id = a.id
        RETURNING r.run_id, r.status, r.last_seq, a.passes, a.was,
                  octet_length(r.metadata::text) > {metadata_max} AS is_oversize,
                  r.status <> 'success' OR r.retry_of IS NOT NULL OR r.metadata ?| '{artifacts,schedule}'
                      AS has_sequel),
    recorded AS (
        INSERT INTO {ops}.run_steps (created_at, seq, step, run_id)
        SELECT v_now, e.last_seq,
               CASE WHEN e.passes THEN CASE e.status WHEN 'success' THEN 'S' ELSE 'F' END
                    ELSE CASE e.status WHEN 'success' THEN 's' ELSE 'f' END END, e.run_id
          FROM ended e WHERE e.status <> 'cancelled'),
    recorded_cancels AS (
        INSERT INTO {ops}.run_log (run_id, seq, kind, level, message, payload, created_at)
        SELECT e.run_id, e.last_seq, 'transition', 'warn', 'Run cancelled',
               jsonb_build_object('from', e.was, 'to', e.status, 'cause', 'cancelled'), v_now
          FROM ended e WHERE e.status = 'cancelled')
    SELECT bool_or(e.is_oversize) AS is_oversize,
           array_agg(e.run_id) FILTER (WHERE e.has_sequel) AS sequel
      INTO v_ended FROM ended e;
    IF v_ended.is_oversize THEN
        RAISE EXCEPTION 'the merged metadata is larger than % bytes', {metadata_max} USING ERRCODE = 'TM007';
    END IF;
    FOREACH v_sequel IN ARRAY coalesce(v_ended.sequel, '{}') LOOP
        PERFORM {ops}.after_finish(v_sequel, v_now);
    END LOOP;
    IF 'cancelled' = ANY (p_statuses) THEN
        PERFORM {ops}.audit_unclaimed_cancel(a.id, p_worker_id, a.epoch, v_now)
           FROM unnest(p_run_ids, p_statuses, p_epochs) a (id, asked, epoch) WHERE a.asked = 'cancelled';
    END IF;
    RETURN QUERY SELECT a.id, 'applied' FROM unnest(p_run_ids) a (id);
END
$$;

-- The consequences of a reported end: list and notice, artifacts from the metadata, and a successor if the budget
-- allows one. One run at a time: a plan for several that is made while the table is small would keep scanning it.
CREATE FUNCTION {ops}.after_finish(p_run_id text, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_run {ops}.runs;
BEGIN
    SELECT r.* INTO v_run FROM {ops}.runs r WHERE r.run_id = p_run_id;
    PERFORM {ops}.record_end(v_run);
    IF jsonb_typeof(v_run.metadata -> 'artifacts') = 'array' THEN
        PERFORM {ops}.put_artifact(v_run.run_id, a ->> 'type', a ->> 'url', a ->> 'digest',
                CASE WHEN jsonb_typeof(a -> 'size_bytes') = 'number' AND a ->> 'size_bytes' ~ '^-?[0-9]{1,18}$'
                     THEN (a ->> 'size_bytes')::bigint END, '{}'::jsonb, p_now)
           FROM jsonb_array_elements(v_run.metadata -> 'artifacts') a
          WHERE a ->> 'type' <> '' AND a ->> 'url' <> '';
    END IF;
    IF v_run.status = 'failed' AND v_run.failures + 1 < v_run.max_attempts AND v_run.cancel_requested_at IS NULL THEN
        PERFORM {ops}.follow_run(v_run.run_id, v_run.failures + 1, v_run.losses,
            p_now + {ops}.backoff(v_run.backoff_secs, v_run.failures, v_run.run_id), p_now);
    END IF;
END
$$;

-- Finishes a run. False if it has ended otherwise, or another worker holds it. Any caller may cancel.
CREATE FUNCTION {ops}.finish_run(
    p_run_id    text,
    p_status    text,
    p_metadata  jsonb DEFAULT '{}'::jsonb,
    p_worker_id text DEFAULT NULL,
    p_epoch     integer DEFAULT NULL,
    p_now       timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql {verb} AS $$
-- `run` is a row of the table.
#variable_conflict use_column
DECLARE
    v_now     timestamptz := {call_time};
    v_outcome text;
BEGIN
    -- The holder reports the end of a running run with few metadata: the same statement as in finish_one, without the
    -- expressions around it.
    IF p_status IN ('success', 'failed') AND jsonb_typeof(p_metadata) = 'object'
       AND (octet_length(p_metadata::text) <= 16
            OR octet_length(p_metadata::text) <= 2 * {json_depth_max} AND p_metadata::text !~ '[0-9]{16}') THEN
        {finish_running};
        IF v_outcome = 'applied' THEN
            RETURN true;
        ELSIF v_outcome = 'sequel' THEN
            PERFORM {ops}.after_finish(p_run_id, v_now);
            RETURN true;
        ELSIF v_outcome = 'oversize' THEN
            RAISE EXCEPTION 'the merged metadata is larger than % bytes', {metadata_max} USING ERRCODE = 'TM007';
        END IF;
    END IF;
    RETURN {ops}.finish_one(p_run_id, p_status, coalesce(p_metadata, '{}'::jsonb), p_worker_id, p_epoch, p_now)
        <> 'stale';
END
$$;
