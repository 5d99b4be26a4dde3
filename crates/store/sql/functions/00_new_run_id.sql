-- A run id made of the time and randomness, as the Rust side makes them: ids sort by age.
-- Like every helper, it is PL/pgSQL, whose plans are kept for the session, and takes the search_path from the verb
-- that calls it: a function in SQL would be planned at every call.
CREATE FUNCTION {ops}.new_run_id(p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN 'run-' || encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM p_now) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid::text;
END
$$;
