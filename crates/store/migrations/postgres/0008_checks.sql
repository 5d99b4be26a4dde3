-- A check is read and prepared anew for every statement that writes a run, each constant byte by byte; a call of a
-- function that keeps its plan is short to read. The names of operators say where they are from, for the function runs
-- with whatever the writer of the run looks up names in.
CREATE FUNCTION {ops}.run_is_whole(p_gate text, p_status text, p_finished_at timestamptz, p_claimed_by text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN p_gate IS NOT NULL THEN p_status OPERATOR(pg_catalog.=) 'queued' AND p_finished_at IS NULL
                WHEN p_finished_at IS NULL
                THEN p_status OPERATOR(pg_catalog.=) ANY ('{claimed,running}') AND p_claimed_by IS NOT NULL
                ELSE p_status OPERATOR(pg_catalog.=) ANY ('{success,failed,cancelled}') END;
END
$$;

-- Not validated again: every run that is there fulfils the same check under its old name.
ALTER TABLE {ops}.runs DROP CONSTRAINT run_is_whole,
    ADD CONSTRAINT run_is_whole CHECK ({ops}.run_is_whole(gate, status, finished_at, claimed_by)) NOT VALID;
