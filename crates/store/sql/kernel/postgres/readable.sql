-- Ids, and checks that Rust can read a value. PostgreSQL accepts times up to `infinity`, numbers of any size and JSON
-- of any depth; a row with such a value would be unreadable for every process. The functions and the triggers refuse
-- it. PostgreSQL only: SQLite checks these values in Rust and by STRICT tables.
--
-- Creates a run id from the time and random bits, as Rust does: a UUID of version 7, so that ids sort by age. Like
-- every helper, this is PL/pgSQL, which keeps plans for the session (a function in SQL would be planned at every call),
-- and uses the search_path of the function that calls it.
CREATE FUNCTION {ops}.new_run_id(p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_now ALIAS FOR p_now;
BEGIN
    RETURN {new_run_id};
END
$$;

CREATE FUNCTION {ops}.is_readable_time(p_time timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN p_time IS NULL OR (p_time OPERATOR(pg_catalog.>) {time_min} AND p_time OPERATOR(pg_catalog.<) {time_max});
END
$$;

CREATE FUNCTION {ops}.refuse_time(p_name text, p_time timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is %; use a time between the years 1 and 9999', p_name, p_time USING ERRCODE = 'TM006';
END
$$;

-- Returns a time that the caller passed as p_now, or refuses it. The time decides claims, leases and the dates of
-- events, so only tests move it. They are members of tidemill_clock, which `roles create` makes without members, or
-- superusers, who are members of every role. It checks the user who logged in; SET ROLE does not change that user.
CREATE FUNCTION {ops}.given_time(p_now timestamptz)
RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = session_user AND r.rolsuper)
       AND NOT EXISTS (SELECT FROM pg_roles r
                        WHERE r.rolname = '{clock_role}' AND pg_has_role(session_user, r.oid, 'USAGE')) THEN
        RAISE EXCEPTION 'p_now is %, but % is not a member of {clock_role} and cannot choose the time', p_now,
            session_user USING ERRCODE = 'insufficient_privilege', HINT = 'Omit p_now to use the server''s clock.';
    ELSIF NOT {ops}.is_readable_time(p_now) THEN
        PERFORM {ops}.refuse_time('p_now', p_now);
    END IF;
    RETURN p_now;
END
$$;

-- The problem of a document, or NULL. A text without 16 digits in a row and without many brackets has none; only other
-- documents are traversed.
CREATE FUNCTION {ops}.json_problem(p_document jsonb, p_text text)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    -- A text of 2 * {json_depth_max} bytes cannot be nested too deeply.
    IF p_text OPERATOR(pg_catalog.!~) '[0-9]{16}'
       AND (pg_catalog.octet_length(p_text) OPERATOR(pg_catalog.<=) (2 OPERATOR(pg_catalog.*) {json_depth_max})
            OR pg_catalog.length(p_text)
               OPERATOR(pg_catalog.-) pg_catalog.length(pg_catalog.translate(p_text, '[{', ''))
               OPERATOR(pg_catalog.<=) {json_depth_max}) THEN
        RETURN NULL;
    END IF;
    RETURN {ops}.json_problem_in_depth(p_document);
END
$$;

CREATE FUNCTION {ops}.json_problem_in_depth(p_document jsonb)
RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_found record;
BEGIN
    WITH RECURSIVE node (value, depth) AS (
        SELECT p_document, 1
        UNION ALL
        SELECT child.value, n.depth + 1
          FROM node n
         CROSS JOIN LATERAL (
            SELECT e.value FROM jsonb_each(CASE jsonb_typeof(n.value) WHEN 'object' THEN n.value ELSE '{}' END) e
            UNION ALL
            SELECT a.value FROM jsonb_array_elements(
                CASE jsonb_typeof(n.value) WHEN 'array' THEN n.value ELSE '[]' END) a (value)) child
         WHERE n.depth <= {json_depth_max}),
    number (value) AS MATERIALIZED (
        SELECT (n.value #>> '{}')::numeric FROM node n WHERE jsonb_typeof(n.value) = 'number')
    SELECT (SELECT max(n.depth) FROM node n WHERE jsonb_typeof(n.value) IN ('object', 'array')) AS depth,
           (SELECT n.value FROM number n WHERE abs(n.value) >= 1.7976931348623158e308
                 OR (n.value <> 0 AND abs(n.value) < 4.9406564584124654e-324) LIMIT 1) AS huge,
           -- Rust reads such an integer as a floating-point number, which has 15 reliable digits.
           (SELECT n.value FROM number n
             WHERE (n.value > 18446744073709551615 OR n.value < -9223372036854775808) AND n.value = trunc(n.value)
               AND CASE WHEN abs(n.value) < 1.7976931348623158e308
                        THEN n.value <> n.value::float8::numeric ELSE false END LIMIT 1) AS rounded
      INTO v_found;
    RETURN CASE WHEN v_found.depth > {json_depth_max} THEN 'is nested deeper than {json_depth_max} levels'
                WHEN v_found.huge IS NOT NULL THEN 'holds a number that no 64-bit floating-point number can represent'
                WHEN v_found.rounded IS NOT NULL
                THEN 'holds the integer ' || left(v_found.rounded::text, 40) || ', which has more than 64 bits'
           END;
END
$$;

-- Refuses a document that is too large or that Rust cannot read. NULL passes.
CREATE FUNCTION {ops}.check_document(p_name text, p_document jsonb, p_bytes_max integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_text    text := p_document::text;
    v_problem text;
BEGIN
    IF octet_length(v_text) > p_bytes_max THEN
        RAISE EXCEPTION '% is larger than % bytes', p_name, p_bytes_max USING ERRCODE = 'TM007';
    END IF;
    v_problem := {ops}.json_problem(p_document, v_text);
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION '% %', p_name, v_problem USING ERRCODE = 'TM006',
            HINT = 'Send large numbers as strings, and nest less deeply.';
    END IF;
END
$$;

-- Tables that operators edit with plain SQL refuse unreadable values. Each has one trigger, generated from its columns,
-- that checks only the columns a statement changes. Runs and events have guards of their own. Tables with thousands of
-- writes, such as pages and messages, have none: an unreadable row of theirs is skipped when it is read.
-- Watermarks may hold numbers, which are times after the year 9999. Rust reads them up to the year 262142.
DO $make$
DECLARE
    v_table  record;
BEGIN
    FOR v_table IN
        SELECT c.oid::regclass AS name, 'guard_' || c.relname AS guard,
               string_agg(CASE WHEN a.attname IN ('last_updated_at', 'copied_updated_at', 'watermark_before',
                                                  'watermark_after', 'updated_from')
                   THEN format('IF NEW.%1$I IS DISTINCT FROM OLD.%1$I AND NOT (NEW.%1$I IS NULL '
                               'OR NEW.%1$I BETWEEN ''0001-01-01 00:00:00+00'' '
                               'AND ''262142-12-31 23:59:59.999999+00'') THEN '
                               'PERFORM {ops}.refuse_time(%1$L, NEW.%1$I); END IF;', a.attname)
                   WHEN a.atttypid = 'timestamptz'::regtype
                   THEN format('IF NEW.%1$I IS DISTINCT FROM OLD.%1$I AND NOT {ops}.is_readable_time(NEW.%1$I) THEN '
                               'PERFORM {ops}.refuse_time(%1$L, NEW.%1$I); END IF;', a.attname)
                   ELSE format('IF NEW.%1$I IS DISTINCT FROM OLD.%1$I THEN '
                               'PERFORM {ops}.check_document(%1$L, NEW.%1$I, 16777216); END IF;', a.attname) END,
                   ' ' ORDER BY a.attnum) AS checks
          FROM unnest(ARRAY['{ops}.projects', '{ops}.environments', '{ops}.flags', '{ops}.schedules', '{ops}.workers',
                            '{ops}.artifacts', '{ops}.alerts', '{ops}.feeds', '{ops}.graphs', '{ops}.tokens',
                            '{sync}.run_metadata', '{sync}.pricing_rules']::regclass[]) t (oid)
          JOIN pg_class c ON c.oid = t.oid
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
           AND a.atttypid IN ('timestamptz'::regtype, 'jsonb'::regtype)
         GROUP BY c.oid, c.relname
    LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION %I.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER '
                       'SET search_path = pg_catalog, pg_temp AS $guard$ BEGIN %s RETURN NEW; END $guard$',
                       '{schema}', v_table.guard, v_table.checks);
        EXECUTE format('CREATE OR REPLACE TRIGGER a_readable BEFORE INSERT OR UPDATE ON %s '
                       'FOR EACH ROW EXECUTE FUNCTION %I.%I()', v_table.name, '{schema}', v_table.guard);
    END LOOP;
END
$make$;
