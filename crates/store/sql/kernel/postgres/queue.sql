-- Returns the run that an earlier request created, found by idempotency key or by id.
CREATE FUNCTION {ops}.find_request(p_project_id text, p_key text, p_run_id text, OUT run_id text, OUT status text,
                                   OUT queued_at timestamptz, OUT request jsonb)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT r.run_id, r.status, r.queued_at, r.request INTO run_id, status, queued_at, request
      FROM {ops}.runs r WHERE r.project_id = p_project_id AND r.idempotency_key = p_key;
    IF NOT FOUND THEN
        SELECT r.run_id, r.status, r.queued_at, r.request INTO run_id, status, queued_at, request
          FROM {ops}.runs r WHERE r.run_id = p_run_id AND r.project_id = p_project_id;
    END IF;
END
$$;

-- Queues a run. A repeated request with the same idempotency key returns the existing run; another request with that
-- key is an error.
CREATE FUNCTION {ops}.queue_run(
    p_project_id      text,
    p_env             text,
    p_git_sha         text,
    p_git_ref         text,
    p_metadata        jsonb DEFAULT '{}'::jsonb,
    p_idempotency_key text DEFAULT NULL,
    p_priority        integer DEFAULT 0,
    p_available_at    timestamptz DEFAULT NULL,
    p_expires_at      timestamptz DEFAULT NULL,
    p_max_attempts    integer DEFAULT {attempts_default},
    p_max_losses      integer DEFAULT {losses_default},
    p_backoff_secs    integer DEFAULT {backoff_secs},
    p_timeout_secs    integer DEFAULT NULL,
    p_concurrency_key text DEFAULT NULL,
    p_labels          text[] DEFAULT '{}',
    p_run_id          text DEFAULT NULL,
    p_wake            boolean DEFAULT true,
    p_now             timestamptz DEFAULT NULL,
    p_kind            text DEFAULT '')
RETURNS TABLE (run_id text, status text, queued_at timestamptz, created boolean)
LANGUAGE plpgsql {verb} AS $$
#variable_conflict use_column
DECLARE
    v_now      timestamptz := {call_time};
    v_metadata text := p_metadata::text;
    v_run_id   text;
    v_labels   text[];
    v_request  jsonb;
    v_env_id   text;
    v_label_set integer;
    v_gate     text;
    v_wake     boolean;
    v_fits     boolean;
    v_found    record;
BEGIN
    -- The usual request is one condition and one statement: PL/pgSQL prepares each expression again in every
    -- transaction. All other requests, and those for which the statement inserts no row, take the path below.
    IF p_idempotency_key IS NULL AND p_concurrency_key IS NULL AND p_labels = '{}'
       AND (p_run_id IS NULL OR {run_id_is_ours})
       AND p_available_at IS NULL AND p_expires_at IS NULL
       AND jsonb_typeof(p_metadata) = 'object' AND {document_is_plain}
       AND p_priority BETWEEN -{priority_max} AND {priority_max} AND p_max_attempts BETWEEN 1 AND {attempts_max}
       AND p_max_losses BETWEEN 0 AND {attempts_max} AND p_backoff_secs BETWEEN 0 AND {backoff_max}
       AND (p_timeout_secs IS NULL OR p_timeout_secs BETWEEN 1 AND 31536000)
       AND (p_kind = '' AND p_git_sha IS NULL AND p_git_ref IS NULL
            OR octet_length(p_kind) <= {kind_max} AND octet_length(coalesce(p_git_sha, '-')) BETWEEN 1 AND {key_max}
               AND octet_length(coalesce(p_git_ref, '-')) BETWEEN 1 AND {key_max}
               AND concat(p_git_sha, p_git_ref, p_kind) !~ {control}) THEN
        IF p_run_id IS NULL THEN
            -- A new id cannot be taken. Without ON CONFLICT, PostgreSQL neither looks for it first nor confirms the row
            -- later.
            {queue_usual_first} {new_run_id}
            {queue_usual_middle}
            {queue_usual_last};
        ELSE
            {queue_usual_first} p_run_id
            {queue_usual_middle}
               -- Otherwise the id may be taken by a removed run.
               AND NOT EXISTS (SELECT FROM {ops}.removed_runs u WHERE u.part = 'events' AND u.run_id = p_run_id)
            ON CONFLICT DO NOTHING
            {queue_usual_last};
        END IF;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;

    -- An expression is cheaper than PERFORM, which is a query.
    v_fits := {ops}.check_request(p_metadata, p_priority, p_max_attempts, p_max_losses, p_backoff_secs,
        p_timeout_secs, p_labels, ARRAY[p_git_sha, p_git_ref, p_idempotency_key, p_concurrency_key], p_kind);
    v_run_id := coalesce(p_run_id, {ops}.new_run_id(v_now));
    v_labels := p_labels;
    v_gate := 'open';
    IF p_run_id IS NOT NULL AND NOT {run_id_is_ours} THEN
        PERFORM {ops}.check_run_id(p_run_id);
    END IF;
    IF p_available_at IS NOT NULL AND NOT {ops}.is_readable_time(p_available_at) THEN
        PERFORM {ops}.refuse_time('p_available_at', p_available_at);
    ELSIF p_expires_at IS NOT NULL AND NOT {ops}.is_readable_time(p_expires_at) THEN
        PERFORM {ops}.refuse_time('p_expires_at', p_expires_at);
    ELSIF p_expires_at <= p_available_at THEN
        RAISE EXCEPTION 'a run cannot expire before it is available' USING ERRCODE = 'TM006';
    END IF;
    IF cardinality(v_labels) > 1 THEN
        v_labels := ARRAY(SELECT DISTINCT l COLLATE "C" FROM unnest(v_labels) l ORDER BY 1);
    END IF;

    SELECT e.env_id, s.label_set_id, p_wake AND EXISTS (SELECT FROM {ops}.workers w WHERE w.waiting)
      INTO v_env_id, v_label_set, v_wake
      FROM {ops}.environments e
      LEFT JOIN {ops}.label_sets s ON s.project_id = e.project_id AND s.labels = v_labels
     WHERE e.project_id = p_project_id AND e.env_type = p_env;
    IF v_env_id IS NULL THEN
        PERFORM {ops}.refuse_environment(p_project_id, p_env);
    END IF;

    IF p_idempotency_key IS NOT NULL THEN
        v_request := jsonb_build_object('env', p_env, 'git_sha', p_git_sha, 'git_ref', p_git_ref,
            'metadata', p_metadata, 'priority', p_priority, 'max_attempts', p_max_attempts,
            'max_losses', p_max_losses, 'backoff_secs', p_backoff_secs, 'timeout_secs', p_timeout_secs,
            'concurrency_key', p_concurrency_key, 'labels', v_labels, 'kind', p_kind,
            -- As numbers: the text of a time depends on the session's time zone.
            'available_at', extract(epoch FROM p_available_at), 'expires_at', extract(epoch FROM p_expires_at));
    END IF;
    -- Answer a repeated request before its concurrency key is entered. Without keys, the INSERT detects it.
    IF p_idempotency_key IS NOT NULL OR (p_run_id IS NOT NULL AND p_concurrency_key IS NOT NULL) THEN
        SELECT f.* INTO v_found FROM {ops}.find_request(p_project_id, p_idempotency_key, p_run_id) f;
        IF v_found.run_id IS NOT NULL THEN
            IF v_found.request IS DISTINCT FROM v_request THEN
                PERFORM {ops}.refuse_key(p_idempotency_key, v_found.run_id);
            END IF;
            RETURN QUERY SELECT v_found.run_id, v_found.status, v_found.queued_at, false;
            RETURN;
        END IF;
    END IF;

    IF v_label_set IS NULL THEN
        INSERT INTO {ops}.label_sets (project_id, labels) VALUES (p_project_id, v_labels) ON CONFLICT DO NOTHING;
        SELECT s.label_set_id INTO v_label_set FROM {ops}.label_sets s
         WHERE s.project_id = p_project_id AND s.labels = v_labels;
    END IF;
    IF p_available_at > v_now THEN
        v_gate := 'time';
    ELSIF p_concurrency_key IS NOT NULL THEN
        v_gate := {ops}.enter_key(v_run_id, p_project_id, p_concurrency_key, p_priority, v_now, true);
    END IF;

    IF p_run_id IS NULL AND p_idempotency_key IS NULL THEN
        {insert_run};
    ELSE
        {insert_run} ON CONFLICT DO NOTHING;
    END IF;
    IF NOT FOUND THEN
        -- The run exists: the call is repeated, or another caller with this key committed after the query above. Return
        -- the existing run, and release the concurrency key that was entered for the new one. If both calls name the
        -- same run id, that run keeps the key, unless it has ended or waits.
        IF p_concurrency_key IS NOT NULL AND NOT EXISTS (
            SELECT FROM {ops}.runs r
             WHERE r.run_id = v_run_id AND r.project_id = p_project_id AND r.concurrency_key = p_concurrency_key
               AND r.finished_at IS NULL AND r.gate IS DISTINCT FROM 'key' AND r.gate IS DISTINCT FROM 'time')
        THEN
            PERFORM {ops}.pass_key(p_project_id, p_concurrency_key, v_run_id);
        END IF;
        SELECT f.* INTO v_found FROM {ops}.find_request(p_project_id, p_idempotency_key, p_run_id) f;
        IF v_found.run_id IS NULL THEN
            RAISE EXCEPTION 'run id % is taken', p_run_id USING ERRCODE = 'TM004';
        ELSIF v_found.request IS DISTINCT FROM v_request THEN
            PERFORM {ops}.refuse_key(p_idempotency_key, v_found.run_id);
        END IF;
        RETURN QUERY SELECT v_found.run_id, v_found.status, v_found.queued_at, false;
        RETURN;
    END IF;
    IF p_run_id IS NOT NULL THEN
        PERFORM {ops}.refuse_used_id(p_run_id);
    END IF;
    INSERT INTO {ops}.run_steps (created_at, seq, step, run_id, env_id) VALUES (v_now, 1, 'q', v_run_id, v_env_id);

    IF v_wake THEN
        PERFORM pg_notify('{channel}', '');
    END IF;
    run_id := v_run_id;
    status := 'queued';
    queued_at := v_now;
    created := true;
    RETURN NEXT;
END
$$;
