-- Tables that people edit with plain SQL refuse what Rust cannot read. One trigger each, made from its columns: only
-- columns that a statement changes are checked. Runs and events have guards of their own; tables that are written
-- by the thousand, such as pages and messages, have none, and their rows are read one by one.
DO $make$
DECLARE
    v_table  record;
BEGIN
    FOR v_table IN
        SELECT c.oid::regclass AS name, 'guard_' || c.relname AS guard,
               string_agg(CASE WHEN a.atttypid = 'timestamptz'::regtype
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
