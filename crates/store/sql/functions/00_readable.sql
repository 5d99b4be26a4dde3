-- What Rust can read. PostgreSQL accepts times up to `infinity`, numbers of any size and JSON of any depth; a row with
-- such a value would be unreadable for every process. The functions refuse it, and so do the triggers.

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

-- What is wrong with a document, or NULL. Almost every document is settled by its text, which has neither 16 digits in
-- a row nor many brackets; only others are walked through.
CREATE FUNCTION {ops}.json_problem(p_document jsonb, p_text text)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_text OPERATOR(pg_catalog.!~) '[0-9]{16}'
       AND pg_catalog.length(p_text) OPERATOR(pg_catalog.-) pg_catalog.length(pg_catalog.translate(p_text, '[{', ''))
           OPERATOR(pg_catalog.<=) {json_depth_max} THEN
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
