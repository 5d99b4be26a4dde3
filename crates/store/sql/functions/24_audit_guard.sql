-- What is on record does not change, whoever asks. It goes as a whole when its time is over.

CREATE OR REPLACE FUNCTION {ops}.refuse_audit_change()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'what is on record does not change' USING ERRCODE = 'TM008';
END
$$;

CREATE OR REPLACE TRIGGER audit_change BEFORE UPDATE ON {ops}.audit
    FOR EACH ROW EXECUTE FUNCTION {ops}.refuse_audit_change();
