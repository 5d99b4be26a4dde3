-- Concurrency keys. Only the head of a key has an open gate; the others stand in line behind it, out of the way of
-- claims. Lock order: a run that is being changed, then its key, then another run of the key, and that one only
-- where it is free (SKIP LOCKED), so that no two of these wait for each other.

-- Puts a queued run at the head of its key or in line, and says which gate it gets.
CREATE FUNCTION {ops}.enter_key(p_run_id text, p_project_id text, p_key text, p_priority integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_head text;
    v_lower text;
BEGIN
    INSERT INTO {ops}.concurrency_keys AS k (project_id, concurrency_key, head_run_id)
    VALUES (p_project_id, p_key, p_run_id)
    ON CONFLICT (project_id, concurrency_key)
        DO UPDATE SET head_run_id = coalesce(k.head_run_id, excluded.head_run_id)
    RETURNING k.head_run_id INTO v_head;
    IF v_head = p_run_id THEN
        RETURN 'open';
    END IF;
    -- A head that nobody has claimed yet gives way to a run of higher priority.
    SELECT r.run_id INTO v_lower FROM {ops}.runs r
     WHERE r.run_id = v_head AND r.gate = 'open' AND r.priority < p_priority
       FOR UPDATE SKIP LOCKED;
    IF v_lower IS NULL THEN
        RETURN 'key';
    END IF;
    UPDATE {ops}.runs SET gate = 'key' WHERE run_id = v_lower;
    UPDATE {ops}.concurrency_keys SET head_run_id = p_run_id
     WHERE project_id = p_project_id AND concurrency_key = p_key;
    RETURN 'open';
END
$$;

-- Passes a key on from a run that has ended, or from nobody, to the first in line.
CREATE FUNCTION {ops}.pass_key(p_project_id text, p_key text, p_from text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_head text;
    v_next text;
BEGIN
    SELECT k.head_run_id INTO v_head FROM {ops}.concurrency_keys k
     WHERE k.project_id = p_project_id AND k.concurrency_key = p_key FOR UPDATE;
    IF NOT FOUND OR v_head IS DISTINCT FROM p_from THEN
        RETURN;
    END IF;
    SELECT r.run_id INTO v_next FROM {ops}.runs r
     WHERE r.project_id = p_project_id AND r.concurrency_key = p_key AND r.gate = 'key'
     ORDER BY r.priority DESC, r.ready_at, r.run_id LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF v_next IS NOT NULL THEN
        UPDATE {ops}.runs SET gate = 'open' WHERE run_id = v_next;
        UPDATE {ops}.concurrency_keys SET head_run_id = v_next
         WHERE project_id = p_project_id AND concurrency_key = p_key;
        PERFORM {ops}.wake();
    ELSIF EXISTS (SELECT FROM {ops}.runs r WHERE r.project_id = p_project_id
                     AND r.concurrency_key = p_key AND r.gate = 'key') THEN
        -- Somebody is changing the only one in line. The sweeper comes back to a key without a head.
        UPDATE {ops}.concurrency_keys SET head_run_id = NULL
         WHERE project_id = p_project_id AND concurrency_key = p_key;
    ELSE
        DELETE FROM {ops}.concurrency_keys WHERE project_id = p_project_id AND concurrency_key = p_key;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION {ops}.release_key()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.finished_at IS NOT NULL THEN
        PERFORM {ops}.pass_key(NEW.project_id, NEW.concurrency_key, NEW.run_id);
    END IF;
    RETURN NULL;
END
$$;

-- Of statements that name the end only: the condition is read and prepared anew for each. A plain statement that ends a
-- run without naming it passes the key on where it is completed.
CREATE OR REPLACE TRIGGER run_releases_key AFTER UPDATE OF finished_at ON {ops}.runs
    FOR EACH ROW WHEN (NEW.concurrency_key IS NOT NULL) EXECUTE FUNCTION {ops}.release_key();

-- Opens the gate of runs whose time has come.
CREATE FUNCTION {ops}.open_due(p_limit integer, p_now timestamptz)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_due record;
    v_opened integer := 0;
BEGIN
    FOR v_due IN
        SELECT r.run_id, r.project_id, r.concurrency_key, r.priority FROM {ops}.runs r
         WHERE r.gate = 'time' AND r.available_at <= p_now
         ORDER BY r.available_at LIMIT p_limit
           FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE {ops}.runs SET updated_at = p_now, gate =
            CASE WHEN v_due.concurrency_key IS NULL THEN 'open'
                 ELSE {ops}.enter_key(v_due.run_id, v_due.project_id, v_due.concurrency_key, v_due.priority)
            END
         WHERE run_id = v_due.run_id;
        v_opened := v_opened + 1;
    END LOOP;
    RETURN v_opened;
END
$$;
