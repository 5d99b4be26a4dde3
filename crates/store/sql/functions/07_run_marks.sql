-- What lists find runs by: commit, branch, lane and feed, each a mark of the run in a table of its own (ADR 22). They
-- are kept by triggers, so that a plain statement does it too.

-- Enters a run under its marks. The names of operators say where they are from: whoever calls this sets no search path.
CREATE FUNCTION {ops}.mark_run(p_run {ops}.runs)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {ops}.run_marks (kind, value, run_id)
    SELECT m.kind, m.value, p_run.run_id
      FROM (VALUES ('lane', CASE WHEN p_run.lane OPERATOR(pg_catalog.<>) 'ops' THEN p_run.lane END),
                   ('feed', CASE WHEN p_run.lane OPERATOR(pg_catalog.=) 'sync' THEN p_run.concurrency_key END),
                   ('sha', p_run.git_sha), ('ref', p_run.git_ref)) m (kind, value)
     WHERE m.value IS NOT NULL
    ON CONFLICT DO NOTHING;
END
$$;

-- Four looks by the whole key: one statement for all of them would be planned while the table is small, and read it.
CREATE FUNCTION {ops}.unmark_run(p_run {ops}.runs)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {ops}.run_marks WHERE kind = 'lane' AND value = p_run.lane AND run_id = p_run.run_id;
    DELETE FROM {ops}.run_marks WHERE kind = 'feed' AND value = p_run.concurrency_key AND run_id = p_run.run_id;
    DELETE FROM {ops}.run_marks WHERE kind = 'sha' AND value = p_run.git_sha AND run_id = p_run.run_id;
    DELETE FROM {ops}.run_marks WHERE kind = 'ref' AND value = p_run.git_ref AND run_id = p_run.run_id;
END
$$;

-- After the row: an INSERT that meets a conflict must leave nothing behind. One trigger without a condition, which
-- would be prepared anew for every statement.
CREATE OR REPLACE FUNCTION {ops}.enter_run()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.git_sha IS NOT NULL OR NEW.git_ref IS NOT NULL OR NEW.lane OPERATOR(pg_catalog.<>) 'ops' THEN
        PERFORM {ops}.mark_run(NEW);
    END IF;
    IF NEW.last_seq OPERATOR(pg_catalog.=) 0 THEN
        PERFORM {ops}.record_by_hand(NEW);
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER run_queued AFTER INSERT ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.enter_run();

-- Earlier builds asked first whether a plain statement had made the run.
DROP FUNCTION IF EXISTS {ops}.record_queued();

CREATE OR REPLACE FUNCTION {ops}.keep_marks()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {ops}.unmark_run(OLD);
    IF TG_OP = 'DELETE' THEN
        RETURN NULL;
    END IF;
    PERFORM {ops}.mark_run(NEW);
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER run_marked BEFORE UPDATE OF lane, concurrency_key, git_sha, git_ref ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.keep_marks();

CREATE OR REPLACE TRIGGER run_unmarked AFTER DELETE ON {ops}.runs
    FOR EACH ROW EXECUTE FUNCTION {ops}.keep_marks();
