-- Queues many runs in one call. Each request is checked as queue_run checks it, and the result is as if queue_run were
-- called for each in order. One refused request refuses the whole call and names its position: `runs[2]: …`.
--
-- Label sets, concurrency keys and new runs are written in the lock order (ARCHITECTURE.md, "Lock order"), not in the
-- order of the requests. Two calls with the same keys therefore never wait for each other in a circle.

-- Raises an error again with the position of the request that caused it.
CREATE FUNCTION {ops}.refuse_request(p_position integer, p_code text, p_message text, p_hint text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(p_hint, '') = '' THEN
        RAISE EXCEPTION 'runs[%]: %', p_position, p_message USING ERRCODE = p_code;
    END IF;
    RAISE EXCEPTION 'runs[%]: %', p_position, p_message USING ERRCODE = p_code, HINT = p_hint;
END
$$;

-- Refuses the first element that is not an object, has an unknown field, or has a value of a wrong type.
CREATE FUNCTION {ops}.refuse_unreadable_request(p_runs jsonb)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_request record;
    v_unknown text;
BEGIN
    FOR v_request IN
        SELECT e.value, (e.ordinality - 1)::integer AS position
          FROM jsonb_array_elements(p_runs) WITH ORDINALITY e ORDER BY e.ordinality
    LOOP
        IF jsonb_typeof(v_request.value) <> 'object' THEN
            PERFORM {ops}.refuse_request(v_request.position, 'TM006', 'a request must be a JSON object', NULL);
        END IF;
        SELECT k INTO v_unknown FROM jsonb_object_keys(v_request.value - {queue_field_names}) k ORDER BY 1 LIMIT 1;
        IF FOUND THEN
            PERFORM {ops}.refuse_request(v_request.position, 'TM006',
                format('unknown field `%s`', left(v_unknown, 100)),
                'The fields are: ' || array_to_string({queue_field_names}, ', '));
        END IF;
        BEGIN
            PERFORM FROM jsonb_to_record(v_request.value) AS r ({queue_fields});
        EXCEPTION WHEN OTHERS THEN
            PERFORM {ops}.refuse_request(v_request.position, 'TM006', SQLERRM, NULL);
        END;
    END LOOP;
END
$$;

-- Checks one request as queue_run does. queue_runs calls it for all requests of a call if one of them may be invalid.
CREATE FUNCTION {ops}.check_request_of_many(p_position integer, p_metadata jsonb, p_priority integer,
    p_max_attempts integer, p_max_losses integer, p_backoff_secs integer, p_timeout_secs integer, p_labels text[],
    p_texts text[], p_available_at timestamptz, p_expires_at timestamptz, p_run_id text, p_kind text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_hint text;
BEGIN
    PERFORM {ops}.check_request(p_metadata, p_priority, p_max_attempts, p_max_losses, p_backoff_secs, p_timeout_secs,
        p_labels, p_texts, p_kind);
    IF NOT {ops}.is_readable_time(p_available_at) THEN
        PERFORM {ops}.refuse_time('available_at', p_available_at);
    ELSIF NOT {ops}.is_readable_time(p_expires_at) THEN
        PERFORM {ops}.refuse_time('expires_at', p_expires_at);
    ELSIF p_expires_at <= p_available_at THEN
        RAISE EXCEPTION 'a run cannot expire before it is available' USING ERRCODE = 'TM006';
    END IF;
    PERFORM {ops}.check_run_id(p_run_id);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS v_hint = PG_EXCEPTION_HINT;
    PERFORM {ops}.refuse_request(p_position, SQLSTATE, SQLERRM, v_hint);
END
$$;

-- Refuses the ids of removed runs whose events are not removed yet.
CREATE FUNCTION {ops}.refuse_used_ids(p_run_ids text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_used record;
BEGIN
    FOR v_used IN
        -- Subqueries that return a value: the planner could read a whole table for EXISTS.
        SELECT u.run_id, u.position::integer - 1 AS position
          FROM unnest(p_run_ids) WITH ORDINALITY u (run_id, position)
         WHERE (SELECT r.run_id FROM {ops}.runs r WHERE r.run_id = u.run_id) IS NULL
           AND ((SELECT l.seq FROM {ops}.run_log l WHERE l.run_id = u.run_id LIMIT 1) IS NOT NULL
                OR (SELECT s.seq FROM {ops}.run_steps s WHERE s.run_id = u.run_id LIMIT 1) IS NOT NULL)
         ORDER BY u.position LIMIT 1
    LOOP
        BEGIN
            PERFORM {ops}.refuse_used_id(v_used.run_id);
        EXCEPTION WHEN OTHERS THEN
            PERFORM {ops}.refuse_request(v_used.position, SQLSTATE, SQLERRM, NULL);
        END;
    END LOOP;
END
$$;

-- Enters the concurrency keys of a call, in lock order, and returns the gate of each run. Only the first run of a key
-- by priority and position can become its head; the others wait behind it. Runs that exist already enter no key.
CREATE FUNCTION {ops}.enter_keys(p_run_ids text[], p_projects text[], p_idempotency_keys text[],
    p_concurrency_keys text[], p_priorities integer[], p_gates text[], p_now timestamptz)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    v_gates text[] := p_gates;
    v_first record;
BEGIN
    FOR v_first IN
        SELECT DISTINCT ON (a.project COLLATE "C", a.concurrency_key COLLATE "C")
               a.project, a.concurrency_key, a.run_id, a.priority, a.position
          FROM (SELECT u.run_id, u.project, u.idempotency_key, u.concurrency_key, u.priority, u.gate, u.position,
                       row_number() OVER (PARTITION BY u.project, u.idempotency_key ORDER BY u.position) AS repetition
                  FROM unnest(p_run_ids, p_projects, p_idempotency_keys, p_concurrency_keys, p_priorities, p_gates)
                       WITH ORDINALITY u (run_id, project, idempotency_key, concurrency_key, priority, gate, position)
                ) a
         WHERE a.gate = 'key' AND (a.idempotency_key IS NULL OR a.repetition = 1)
           AND (SELECT r.run_id FROM {ops}.runs r
                 WHERE r.project_id = a.project AND r.idempotency_key = a.idempotency_key) IS NULL
           AND (SELECT r.run_id FROM {ops}.runs r WHERE r.run_id = a.run_id) IS NULL
         ORDER BY a.project COLLATE "C", a.concurrency_key COLLATE "C", a.priority DESC, a.position
    LOOP
        v_gates[v_first.position] := {ops}.enter_key(v_first.run_id, v_first.project, v_first.concurrency_key,
            v_first.priority, p_now, true);
    END LOOP;
    RETURN v_gates;
END
$$;

-- Queues up to {batch_max} runs and returns one row for each request, in order. The elements of p_runs are objects, and
-- their fields are the parameters of queue_run. A field that is absent or null has the default of that parameter. Ids
-- that the function makes increase with the position, so that equal priorities are claimed in the order of the array.
CREATE FUNCTION {ops}.queue_runs(
    p_runs jsonb,
    p_wake boolean DEFAULT true,
    p_now  timestamptz DEFAULT NULL)
RETURNS TABLE (run_id text, status text, queued_at timestamptz, created boolean)
LANGUAGE plpgsql {verb} SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now      timestamptz := {call_time};
    v_prefix   text;
    v_count    integer;
    v_is_plain boolean;
    -- Whether some request has an id of its own.
    v_has_ids  boolean;
    -- Whether no request has an idempotency key or an old id: probably none of the runs exists.
    v_is_new   boolean;
    v_created  text[];
    v_request  record;
    v_found    record;
    -- The columns of the requests.
    v_projects text[];
    v_envs     text[];
    v_shas     text[];
    v_refs     text[];
    v_metadata jsonb[];
    v_keys     text[];
    v_priorities integer[];
    v_available timestamptz[];
    v_expires  timestamptz[];
    v_attempts integer[];
    v_losses   integer[];
    v_backoffs integer[];
    v_timeouts integer[];
    v_lines    text[];
    v_labels   text[];
    v_run_ids  text[];
    v_kinds    text[];
    v_gates    text[];
    v_env_ids  text[];
    v_label_sets integer[];
    -- The labels, sorted and unique.
    v_sorted   text[];
    v_hint     text;
BEGIN
    IF jsonb_typeof(p_runs) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'p_runs must be a JSON array of requests' USING ERRCODE = 'TM006';
    ELSIF jsonb_array_length(p_runs) > {batch_max} THEN
        RAISE EXCEPTION 'there are % runs; at most % can be queued in one call', jsonb_array_length(p_runs), {batch_max}
            USING ERRCODE = 'TM007';
    ELSIF jsonb_array_length(p_runs) = 0 THEN
        RETURN;
    END IF;
    v_prefix := to_hex((extract(epoch FROM v_now) * 1000)::bigint);
    v_prefix := lpad(v_prefix, 12, '0');
    v_prefix := 'run-' || left(v_prefix, 8) || '-' || right(v_prefix, 4) || '-7';

    -- Read the requests into arrays, which are cheap to read again. The checks here are quick and strict: a request
    -- that passes is valid, and one that does not gets the checks of queue_run.
    BEGIN
        SELECT count(*), array_agg(a.project), array_agg(a.env), array_agg(a.git_sha), array_agg(a.git_ref),
               array_agg(a.metadata), array_agg(a.idempotency_key), array_agg(a.priority), array_agg(a.available_at),
               array_agg(a.expires_at), array_agg(a.max_attempts), array_agg(a.max_losses), array_agg(a.backoff_secs),
               array_agg(a.timeout_secs), array_agg(a.concurrency_key), array_agg(a.labels::text), array_agg(a.run_id),
               array_agg(a.kind),
               array_agg(CASE WHEN a.available_at > v_now THEN 'time' WHEN a.concurrency_key IS NULL THEN 'open'
                              ELSE 'key' END),
               bool_or(a.has_id), bool_and(a.idempotency_key IS NULL),
               bool_and(jsonb_typeof(a.metadata) = 'object'
                   -- A shorter document cannot be nested too deeply.
                   AND (a.document IS NULL OR octet_length(a.document) <= 2 * {json_depth_max}
                        OR octet_length(a.document) <= {metadata_max}
                       AND length(a.document) - length(translate(a.document, '[{', '')) <= {json_depth_max})
                   AND a.priority BETWEEN -{priority_max} AND {priority_max}
                   AND a.max_attempts BETWEEN 1 AND {attempts_max} AND a.max_losses BETWEEN 0 AND {attempts_max}
                   AND a.backoff_secs BETWEEN 0 AND {backoff_max}
                   AND (a.timeout_secs IS NULL OR a.timeout_secs BETWEEN 1 AND 31536000)
                   AND (a.labels = '{}'
                        OR cardinality(a.labels) <= {labels_max} AND octet_length(a.labels::text) <= {key_max}
                       AND array_ndims(a.labels) = 1 AND array_position(a.labels, NULL) IS NULL
                       AND '' <> ALL (a.labels))
                   AND (a.available_at IS NULL OR a.available_at > {time_min} AND a.available_at < {time_max})
                   AND (a.expires_at IS NULL OR a.expires_at < {time_max}
                        AND a.expires_at > coalesce(a.available_at, {time_min}))
                   AND octet_length(a.run_id) BETWEEN 5 AND 64 AND starts_with(a.run_id, 'run-')
                   AND (a.git_sha IS NULL OR octet_length(a.git_sha) BETWEEN 1 AND {key_max})
                   AND (a.git_ref IS NULL OR octet_length(a.git_ref) BETWEEN 1 AND {key_max})
                   AND (a.idempotency_key IS NULL OR octet_length(a.idempotency_key) BETWEEN 1 AND {key_max})
                   AND (a.concurrency_key IS NULL OR octet_length(a.concurrency_key) BETWEEN 1 AND {key_max})
                   AND octet_length(a.kind) <= {kind_max})
               AND coalesce(string_agg(a.document, '') !~ '[0-9]{16}', true)
               AND string_agg(a.run_id, '') !~ '[^a-z0-9-]'
               AND concat(string_agg(a.git_sha, ''), string_agg(a.git_ref, ''), string_agg(a.idempotency_key, ''),
                          string_agg(a.concurrency_key, ''), string_agg(a.labels::text, ''),
                          string_agg(a.kind, '')) !~ {control}
          INTO v_count, v_projects, v_envs, v_shas, v_refs, v_metadata, v_keys, v_priorities, v_available, v_expires,
               v_attempts, v_losses, v_backoffs, v_timeouts, v_lines, v_labels, v_run_ids, v_kinds, v_gates,
               v_has_ids, v_is_new, v_is_plain
          FROM (SELECT r.project, r.env, r.git_sha, r.git_ref, coalesce(r.metadata, '{}') AS metadata,
                       r.metadata::text AS document,
                       r.idempotency_key, coalesce(r.priority, 0) AS priority, r.available_at, r.expires_at,
                       coalesce(r.max_attempts, {attempts_default}) AS max_attempts,
                       coalesce(r.max_losses, {losses_default}) AS max_losses,
                       coalesce(r.backoff_secs, {backoff_secs}) AS backoff_secs, r.timeout_secs, r.concurrency_key,
                       coalesce(r.labels, '{}') AS labels, coalesce(r.kind, '') AS kind,
                       r.run_id IS NOT NULL AS has_id,
                       coalesce(r.run_id, v_prefix || lpad(to_hex(r.position), 3, '0')
                                          || substr({ops}.new_run_id(v_now), 23)) AS run_id
                  FROM ROWS FROM (jsonb_to_recordset(p_runs) AS ({queue_fields}))
                       WITH ORDINALITY r ({queue_field_list}, position)) a;
    EXCEPTION WHEN OTHERS THEN
        PERFORM {ops}.refuse_unreadable_request(p_runs);
        RAISE;
    END;
    IF EXISTS (SELECT FROM jsonb_array_elements(p_runs) e WHERE e.value - {queue_field_names} <> '{}') THEN
        PERFORM {ops}.refuse_unreadable_request(p_runs);
    END IF;
    IF NOT v_is_plain THEN
        PERFORM {ops}.check_request_of_many(a.position::integer - 1, a.metadata, a.priority, a.max_attempts,
                    a.max_losses, a.backoff_secs, a.timeout_secs, a.labels::text[],
                    ARRAY[a.git_sha, a.git_ref, a.idempotency_key, a.concurrency_key], a.available_at, a.expires_at,
                    a.run_id, a.kind)
           FROM unnest(v_metadata, v_priorities, v_attempts, v_losses, v_backoffs, v_timeouts, v_labels, v_shas, v_refs,
                       v_keys, v_lines, v_available, v_expires, v_run_ids, v_kinds)
                WITH ORDINALITY a (metadata, priority, max_attempts, max_losses, backoff_secs, timeout_secs, labels,
                    git_sha, git_ref, idempotency_key, concurrency_key, available_at, expires_at, run_id, kind,
                    position);
    END IF;
    SELECT a.run_id, a.first, a.position INTO v_found
      FROM (SELECT u.run_id, u.position, min(u.position) OVER (PARTITION BY u.run_id) AS first
              FROM unnest(v_run_ids) WITH ORDINALITY u (run_id, position)) a
     WHERE a.position > a.first ORDER BY a.position LIMIT 1;
    IF FOUND THEN
        PERFORM {ops}.refuse_request(v_found.position::integer - 1, 'TM006',
            format('run id %s is also the id of runs[%s]', v_found.run_id, v_found.first - 1), NULL);
    END IF;

    -- Environments and label sets, once per distinct combination. A second pass reads label sets that are new.
    LOOP
        SELECT array_agg(a.env_id), array_agg(a.label_set_id), array_agg(a.labels)
          INTO v_env_ids, v_label_sets, v_sorted
          FROM (SELECT p.env_id, p.label_set_id, p.labels::text AS labels
                  FROM unnest(v_projects, v_envs, v_labels) WITH ORDINALITY u (project, env, labels, position)
                  LEFT JOIN (
                    SELECT d.project, d.env, d.labels AS given, l.labels, e.env_id, s.label_set_id
                      FROM (SELECT DISTINCT n.project, n.env, n.labels
                              FROM unnest(v_projects, v_envs, v_labels) n (project, env, labels)) d
                     CROSS JOIN LATERAL (SELECT ARRAY(SELECT DISTINCT t COLLATE "C" FROM unnest(d.labels::text[]) t
                                                       ORDER BY 1) AS labels) l
                     LEFT JOIN LATERAL (SELECT e.env_id FROM {ops}.environments e
                                         WHERE e.project_id = d.project AND e.env_type = d.env LIMIT 1) e ON true
                     LEFT JOIN LATERAL (SELECT s.label_set_id FROM {ops}.label_sets s
                                         WHERE s.project_id = d.project AND s.labels = l.labels LIMIT 1) s ON true
                  ) p ON p.project = u.project AND p.env = u.env AND p.given = u.labels
                 ORDER BY u.position) a;
        IF array_position(v_env_ids, NULL) IS NOT NULL THEN
            BEGIN
                PERFORM {ops}.refuse_environment(v_projects[array_position(v_env_ids, NULL)],
                                                 v_envs[array_position(v_env_ids, NULL)]);
            EXCEPTION WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS v_hint = PG_EXCEPTION_HINT;
                PERFORM {ops}.refuse_request(array_position(v_env_ids, NULL) - 1, SQLSTATE, SQLERRM, v_hint);
            END;
        END IF;
        EXIT WHEN array_position(v_label_sets, NULL) IS NULL;
        INSERT INTO {ops}.label_sets (project_id, labels)
        SELECT DISTINCT u.project, u.labels::text[]
          FROM unnest(v_projects, v_sorted, v_label_sets) u (project, labels, label_set_id)
         WHERE u.label_set_id IS NULL ORDER BY 1, 2
        ON CONFLICT DO NOTHING;
    END LOOP;

    IF 'key' = ANY (v_gates) THEN
        v_gates := {ops}.enter_keys(v_run_ids, v_projects, v_keys, v_lines, v_priorities, v_gates, v_now);
    END IF;

    IF v_is_new AND v_has_ids THEN
        v_is_new := NOT EXISTS (SELECT FROM {ops}.removed_runs u
                                 WHERE u.part = 'events' AND u.run_id = ANY (v_run_ids));
    END IF;
    -- New ids cannot be taken. Without ON CONFLICT, PostgreSQL neither looks for them first nor confirms the rows
    -- later.
    IF v_is_new AND NOT v_has_ids THEN
        {queue_many_first}
        {queue_many_last};
    ELSIF v_is_new THEN
        BEGIN
            {queue_many_first}
            {queue_many_last};
        EXCEPTION WHEN unique_violation THEN
            -- The same call at the same time, for example a retry of one that is still running.
            v_is_new := false;
        END;
    END IF;
    IF NOT v_is_new THEN
        PERFORM {ops}.refuse_used_ids(v_run_ids);
        {queue_many_first}
        ON CONFLICT DO NOTHING
        {queue_many_last};
    END IF;

    IF p_wake AND v_created IS NOT NULL THEN
        PERFORM {ops}.wake();
    END IF;
    IF cardinality(v_created) = v_count THEN
        RETURN QUERY SELECT u, 'queued', v_now, true FROM unnest(v_run_ids) u;
        RETURN;
    END IF;

    -- Some runs exist: requests are repeated, in this call or from an earlier one, or another caller with their keys
    -- committed after the query above. Return the existing runs, and release concurrency keys that were entered for new
    -- ones. If both calls name the same run id, that run keeps the key, unless it has ended or waits.
    FOR v_request IN
        SELECT a.run_id, a.project, a.idempotency_key, a.concurrency_key, a.gate, a.position::integer - 1 AS position,
               q.run_id IS NOT NULL AS is_created,
               CASE WHEN a.idempotency_key IS NOT NULL THEN {queue_request} END AS body
          FROM unnest(v_run_ids, v_projects, v_envs, v_shas, v_refs, v_metadata, v_keys, v_priorities, v_sorted,
                      v_lines, v_gates, v_available, v_expires, v_timeouts, v_attempts, v_losses, v_backoffs, v_kinds)
               WITH ORDINALITY a (run_id, project, env, git_sha, git_ref, metadata, idempotency_key, priority, labels,
                   concurrency_key, gate, available_at, expires_at, timeout_secs, max_attempts, max_losses,
                   backoff_secs, kind, position)
          LEFT JOIN unnest(v_created) q (run_id) ON q.run_id = a.run_id
         ORDER BY a.position
    LOOP
        run_id := v_request.run_id;
        status := 'queued';
        queued_at := v_now;
        created := v_request.is_created;
        IF NOT created THEN
            IF v_request.gate = 'open' AND v_request.concurrency_key IS NOT NULL AND NOT EXISTS (
                SELECT FROM {ops}.runs r
                 WHERE r.run_id = v_request.run_id AND r.project_id = v_request.project
                   AND r.concurrency_key = v_request.concurrency_key
                   AND r.finished_at IS NULL AND r.gate IS DISTINCT FROM 'key' AND r.gate IS DISTINCT FROM 'time')
            THEN
                PERFORM {ops}.pass_key(v_request.project, v_request.concurrency_key, v_request.run_id);
            END IF;
            SELECT f.* INTO v_found
              FROM {ops}.find_request(v_request.project, v_request.idempotency_key, v_request.run_id) f;
            IF v_found.run_id = ANY (v_created)
               AND array_position(v_run_ids, v_found.run_id) > v_request.position + 1 THEN
                -- A later request got the key, because the id of this one exists. In order, this one comes first.
                SELECT f.* INTO v_found FROM {ops}.find_request(v_request.project, NULL, v_request.run_id) f;
            END IF;
            IF v_found.run_id IS NULL THEN
                PERFORM {ops}.refuse_request(v_request.position, 'TM004', format('run id %s is taken', run_id), NULL);
            ELSIF v_found.request IS DISTINCT FROM v_request.body THEN
                BEGIN
                    PERFORM {ops}.refuse_key(v_request.idempotency_key, v_found.run_id);
                EXCEPTION WHEN OTHERS THEN
                    GET STACKED DIAGNOSTICS v_hint = PG_EXCEPTION_HINT;
                    PERFORM {ops}.refuse_request(v_request.position, SQLSTATE, SQLERRM, v_hint);
                END;
            END IF;
            run_id := v_found.run_id;
            status := v_found.status;
            queued_at := v_found.queued_at;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
