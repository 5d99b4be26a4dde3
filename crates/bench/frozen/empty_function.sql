-- The cost of a call without any work: the same attributes as a verb.
CREATE FUNCTION empty_call() RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN true;
END
$$;
