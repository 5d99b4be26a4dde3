-- Refusals with error codes of class TM, so that psql and Rust show the same message. PostgreSQL only: the SQLite verbs
-- raise these errors in Rust.

CREATE FUNCTION {ops}.refuse_environment(p_project_id text, p_env text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {ops}.projects p WHERE p.project_id = p_project_id) THEN
        -- The command of the hint contains only plain names: other characters could have a meaning in a shell.
        RAISE EXCEPTION 'project `%` does not exist', p_project_id USING ERRCODE = 'TM001',
            HINT = CASE WHEN p_project_id ~ '^[a-z0-9][a-z0-9-]*$'
                        THEN format('tidemill project create %s --env %s', p_project_id,
                                    CASE WHEN p_env ~ '^[a-z0-9][a-z0-9-]*$' THEN p_env ELSE 'production' END)
                        ELSE 'tidemill project list' END;
    END IF;
    RAISE EXCEPTION 'project `%` has no environment `%`', p_project_id, p_env USING ERRCODE = 'TM002',
        HINT = 'It has: ' || coalesce((SELECT string_agg(e.env_type, ', ' ORDER BY e.env_type)
                                         FROM {ops}.environments e WHERE e.project_id = p_project_id), 'none');
END
$$;

CREATE FUNCTION {ops}.refuse_run(p_run_id text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run `%` does not exist', p_run_id USING ERRCODE = 'TM003';
END
$$;

CREATE FUNCTION {ops}.refuse_key(p_key text, p_run_id text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'idempotency key `%` belongs to run %, which was requested with other values', p_key, p_run_id
        USING ERRCODE = 'TM004', HINT = 'Use another key for another request.';
END
$$;

-- Refuses the id of a run that was removed while its events are not: the numbers of its events are taken. The caller
-- has inserted the new run, but not its first event.
CREATE FUNCTION {ops}.refuse_used_id(p_run_id text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {ops}.run_log l WHERE l.run_id = p_run_id)
       OR EXISTS (SELECT FROM {ops}.run_steps s WHERE s.run_id = p_run_id) THEN
        RAISE EXCEPTION 'run id % is taken by a removed run, whose events are not removed yet', p_run_id
            USING ERRCODE = 'TM004', HINT = 'Use another id, or leave it out.';
    END IF;
END
$$;

-- Checks a request: true, or an exception. Rust checks the same, and reports all problems at once.
CREATE FUNCTION {ops}.check_request(p_metadata jsonb, p_priority integer, p_max_attempts integer,
    p_max_losses integer, p_backoff_secs integer, p_timeout_secs integer, p_labels text[], p_texts text[], p_kind text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_metadata text := p_metadata::text;
    v_texts    text := array_to_string(p_texts || p_labels, '');
BEGIN
    IF (p_kind <> '') IS NOT FALSE THEN
        PERFORM {ops}.check_kind(p_kind);
    END IF;
    IF jsonb_typeof(p_metadata) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'metadata must be a JSON object' USING ERRCODE = 'TM006';
    -- Sixteen characters contain neither a large number nor a deep document.
    ELSIF octet_length(v_metadata) > 16 AND (octet_length(v_metadata) > {metadata_max}
                                  OR {ops}.json_problem(p_metadata, v_metadata) IS NOT NULL) THEN
        PERFORM {ops}.check_document('metadata', p_metadata, {metadata_max});
    ELSIF p_priority NOT BETWEEN -{priority_max} AND {priority_max} OR p_priority IS NULL THEN
        RAISE EXCEPTION 'priority must be between -% and %', {priority_max}, {priority_max}
            USING ERRCODE = 'TM006';
    ELSIF p_max_attempts NOT BETWEEN 1 AND {attempts_max} OR p_max_attempts IS NULL
       OR p_max_losses NOT BETWEEN 0 AND {attempts_max} OR p_max_losses IS NULL THEN
        RAISE EXCEPTION 'attempts must be between 1 and %, losses between 0 and %', {attempts_max}, {attempts_max}
            USING ERRCODE = 'TM006';
    ELSIF p_backoff_secs NOT BETWEEN 0 AND {backoff_max} OR p_backoff_secs IS NULL
       OR p_timeout_secs NOT BETWEEN 1 AND 31536000 THEN
        RAISE EXCEPTION 'back-off must be between 0 and % seconds, a timeout between 1 second and a year',
            {backoff_max} USING ERRCODE = 'TM006';
    ELSIF cardinality(p_labels) > {labels_max} OR p_labels IS NULL OR array_position(p_labels, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'a run has at most % labels, and none of them is NULL', {labels_max} USING ERRCODE = 'TM006';
    ELSIF '' = ANY (p_texts) OR '' = ANY (p_labels) THEN
        RAISE EXCEPTION 'git sha, git ref, keys and labels must not be empty' USING ERRCODE = 'TM006';
    ELSIF v_texts = '' THEN
        RETURN true;
    ELSIF v_texts ~ {control} THEN
        RAISE EXCEPTION 'git sha, git ref, keys and labels must not contain control characters'
            USING ERRCODE = 'TM006';
    ELSIF octet_length(array_to_string(p_labels, '')) > {key_max} THEN
        PERFORM {ops}.check_labels(p_labels);
    ELSIF octet_length(array_to_string(p_texts, '')) > {key_max} THEN
        IF EXISTS (SELECT FROM unnest(p_texts) t WHERE octet_length(t) > {key_max}) THEN
            RAISE EXCEPTION 'git sha, git ref and keys are at most % bytes each', {key_max} USING ERRCODE = 'TM007';
        END IF;
    END IF;
    RETURN true;
END
$$;

-- Refuses a kind that is NULL, too long or not on one line.
CREATE FUNCTION {ops}.check_kind(p_kind text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_kind IS NULL THEN
        RAISE EXCEPTION 'kind must not be NULL'
            USING ERRCODE = 'TM006', HINT = 'A run without a kind has the kind ''''.';
    ELSIF octet_length(p_kind) > {kind_max} THEN
        RAISE EXCEPTION 'kind has % bytes; at most % are allowed', octet_length(p_kind), {kind_max}
            USING ERRCODE = 'TM007';
    ELSIF p_kind ~ {control} THEN
        RAISE EXCEPTION 'kind must not contain control characters' USING ERRCODE = 'TM006';
    END IF;
END
$$;

-- Refuses labels that are too many, too long or not on one line.
CREATE FUNCTION {ops}.check_labels(p_labels text[])
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(p_labels) > {labels_max} THEN
        RAISE EXCEPTION 'there are % labels; at most % are allowed', cardinality(p_labels), {labels_max}
            USING ERRCODE = 'TM006';
    ELSIF EXISTS (SELECT FROM unnest(p_labels) l WHERE l IS NULL OR octet_length(l) NOT BETWEEN 1 AND {key_max}) THEN
        RAISE EXCEPTION 'a label has between 1 and % bytes', {key_max} USING ERRCODE = 'TM007';
    ELSIF array_to_string(p_labels, '') ~ {control} THEN
        RAISE EXCEPTION 'labels must not contain control characters' USING ERRCODE = 'TM006';
    END IF;
    RETURN true;
END
$$;

-- Refuses a name or reason that is too long. NULL passes.
CREATE FUNCTION {ops}.check_text(p_name text, p_text text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF octet_length(p_text) > {key_max} THEN
        RAISE EXCEPTION '% has % bytes; at most % are allowed', p_name, octet_length(p_text), {key_max}
            USING ERRCODE = 'TM007';
    END IF;
END
$$;

-- Refuses a name that is too long or contains control characters, such as a line break. NULL passes.
CREATE FUNCTION {ops}.check_line(p_name text, p_text text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {ops}.check_text(p_name, p_text);
    IF p_text ~ {control} THEN
        RAISE EXCEPTION '% must not contain control characters', p_name USING ERRCODE = 'TM006';
    END IF;
END
$$;

-- Wakes the workers that have declared that they wait. A worker that misses it polls soon. Functions are written with
-- their schema: setting search_path would cost more than the query.
CREATE FUNCTION {ops}.wake()
RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF EXISTS (SELECT FROM {ops}.workers w WHERE w.waiting) THEN
        PERFORM pg_catalog.pg_notify('{channel}', '');
    END IF;
END
$$;

CREATE FUNCTION {ops}.refuse_final_status(p_status text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '`%` is not a final status; it is one of success, failed, cancelled', p_status
        USING ERRCODE = 'TM006';
END
$$;
