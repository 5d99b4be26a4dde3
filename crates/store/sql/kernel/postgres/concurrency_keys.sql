-- Concurrency keys. Only the head of a key has an open gate; the other runs of the key wait in line behind it, where no
-- claim reads them. The next sweep removes a key without a head and without a line.
--
-- Lock order (ARCHITECTURE.md, "Lock order"): runs, then keys, then no lock that waits. A transaction that has locked
-- a key takes further runs only if they are free (SKIP LOCKED). A transaction with several keys either takes them in
-- the order of (project_id, concurrency_key), or takes only those that are free. The functions open_due and sweep do
-- the latter, so that neither a burst nor an open transaction of another session delays them.

-- Locks a key, and creates its row if necessary. False if p_wait is false and another transaction has the key. Rows are
-- created only under an advisory lock: an uncommitted row of another transaction is invisible, and inserting it again
-- would wait for that transaction.
CREATE FUNCTION {ops}.lock_key(p_project_id text, p_key text, p_wait boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_lock bigint;
BEGIN
    IF p_wait THEN
        PERFORM FROM {ops}.concurrency_keys k
          WHERE k.project_id = p_project_id AND k.concurrency_key = p_key FOR UPDATE;
    ELSE
        PERFORM FROM {ops}.concurrency_keys k
          WHERE k.project_id = p_project_id AND k.concurrency_key = p_key FOR UPDATE SKIP LOCKED;
    END IF;
    IF FOUND THEN
        RETURN true;
    END IF;
    v_lock := hashtextextended('tidemill key {schema} ' || p_project_id || ' ' || p_key, 0);
    IF p_wait THEN
        PERFORM pg_advisory_xact_lock(v_lock);
        INSERT INTO {ops}.concurrency_keys AS k (project_id, concurrency_key) VALUES (p_project_id, p_key)
        ON CONFLICT (project_id, concurrency_key) DO UPDATE SET head_run_id = k.head_run_id;
        RETURN true;
    END IF;
    IF EXISTS (SELECT FROM {ops}.concurrency_keys k WHERE k.project_id = p_project_id AND k.concurrency_key = p_key)
       OR NOT pg_try_advisory_xact_lock(v_lock) THEN
        RETURN false;
    END IF;
    -- Another transaction may have created the row before this one got the advisory lock.
    PERFORM FROM {ops}.concurrency_keys k
      WHERE k.project_id = p_project_id AND k.concurrency_key = p_key FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN true;
    ELSIF EXISTS (SELECT FROM {ops}.concurrency_keys k
                   WHERE k.project_id = p_project_id AND k.concurrency_key = p_key) THEN
        RETURN false;
    END IF;
    INSERT INTO {ops}.concurrency_keys (project_id, concurrency_key) VALUES (p_project_id, p_key);
    RETURN true;
END
$$;

-- Puts a queued run at the head of its key or in line, and returns its gate; NULL if p_wait is false and another
-- transaction has the key. A head that is not claimed yet gives way to a run of higher priority, and to one of the
-- same priority that was requested earlier. The successor of a lost run takes its old position.
CREATE FUNCTION {ops}.enter_key(p_run_id text, p_project_id text, p_key text, p_priority integer,
                                p_ready_at timestamptz, p_wait boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_head text;
    v_gate text;
BEGIN
    IF NOT {ops}.lock_key(p_project_id, p_key, p_wait) THEN
        RETURN NULL;
    END IF;
    SELECT k.head_run_id INTO v_head FROM {ops}.concurrency_keys k
     WHERE k.project_id = p_project_id AND k.concurrency_key = p_key;
    IF v_head = p_run_id THEN
        RETURN 'open';
    ELSIF v_head IS NOT NULL THEN
        SELECT r.gate INTO v_gate FROM {ops}.runs r
         WHERE r.run_id = v_head AND r.finished_at IS NULL
           AND (r.gate IN ('open', 'time') AND r.priority < p_priority
                OR r.gate = 'open' AND r.priority = p_priority AND r.ready_at > p_ready_at)
           FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN 'key';
        END IF;
    END IF;
    UPDATE {ops}.concurrency_keys SET head_run_id = p_run_id
     WHERE project_id = p_project_id AND concurrency_key = p_key;
    IF v_gate = 'open' THEN
        UPDATE {ops}.runs SET gate = 'key' WHERE run_id = v_head;
    END IF;
    RETURN 'open';
END
$$;

-- Passes a key from an ended run, or from no run, to the first run in line.
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
    -- No head if the line is empty, or if another transaction has locked all of it: the next sweep tries again.
    UPDATE {ops}.concurrency_keys SET head_run_id = v_next
     WHERE project_id = p_project_id AND concurrency_key = p_key;
    IF v_next IS NOT NULL THEN
        UPDATE {ops}.runs SET gate = 'open' WHERE run_id = v_next;
        PERFORM {ops}.wake();
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

-- Only for statements that set finished_at, because the condition is prepared again for each statement. For a plain SQL
-- statement that ends a run without setting it, complete_step passes the key on.
CREATE OR REPLACE TRIGGER run_releases_key AFTER UPDATE OF finished_at ON {ops}.runs
    FOR EACH ROW WHEN (NEW.concurrency_key IS NOT NULL) EXECUTE FUNCTION {ops}.release_key();

-- Opens the gates of runs whose available_at has come, without waiting for locks. Runs whose key another transaction
-- has keep their gate and do not count towards the limit.
CREATE FUNCTION {ops}.open_due(p_limit integer, p_now timestamptz)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_due     record;
    v_gate    text;
    v_opened  integer := 0;
    v_wanted  integer;
    v_seen    integer;
    -- Where the next batch begins: runs before it are open, or their key is busy.
    v_from    timestamptz := '-infinity';
    v_busy    text[] := '{}';
BEGIN
    LOOP
        v_wanted := p_limit - v_opened;
        v_seen := 0;
        FOR v_due IN
            SELECT r.run_id, r.project_id, r.concurrency_key, r.priority, r.ready_at, r.attention_at,
                   r.project_id || ' ' || r.concurrency_key AS key_name
              FROM {ops}.runs r
             -- attention_at is not later than available_at; runs_timed has its order, so other due runs are not read.
             WHERE r.gate = 'time' AND r.attention_at BETWEEN v_from AND p_now AND r.available_at <= p_now
               AND (r.concurrency_key IS NULL OR r.project_id || ' ' || r.concurrency_key <> ALL (v_busy))
             ORDER BY r.attention_at LIMIT v_wanted
               FOR UPDATE SKIP LOCKED
        LOOP
            v_seen := v_seen + 1;
            v_from := v_due.attention_at;
            CONTINUE WHEN v_due.key_name = ANY (v_busy);
            v_gate := CASE WHEN v_due.concurrency_key IS NULL THEN 'open'
                           ELSE {ops}.enter_key(v_due.run_id, v_due.project_id, v_due.concurrency_key, v_due.priority,
                                                v_due.ready_at, false) END;
            IF v_gate IS NULL THEN
                v_busy := v_busy || v_due.key_name;
                CONTINUE;
            END IF;
            UPDATE {ops}.runs SET updated_at = p_now, gate = v_gate WHERE run_id = v_due.run_id;
            v_opened := v_opened + 1;
        END LOOP;
        -- A full batch with busy keys may hide runs that can be opened: read the next one.
        EXIT WHEN v_opened >= p_limit OR v_seen < v_wanted OR cardinality(v_busy) > 100;
    END LOOP;
    RETURN v_opened;
END
$$;

-- Repairs keys whose head is not a live run of the key, and lines without a key. Only statements that bypass the
-- triggers, such as those of a restored backup, leave them behind. Returns how many were repaired.
CREATE FUNCTION {ops}.repair_keys(p_limit integer)
RETURNS integer LANGUAGE plpgsql {verb} AS $$
DECLARE
    v_key    record;
    v_repaired integer := 0;
BEGIN
    FOR v_key IN
        SELECT k.project_id, k.concurrency_key, k.head_run_id FROM {ops}.concurrency_keys k
         WHERE k.head_run_id IS NOT NULL
           AND NOT EXISTS (SELECT FROM {ops}.runs r
                            WHERE r.run_id = k.head_run_id AND r.finished_at IS NULL
                              AND r.project_id = k.project_id AND r.concurrency_key = k.concurrency_key)
         ORDER BY 1, 2 LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        -- The head may have changed before the key was locked: check it again.
        CONTINUE WHEN EXISTS (SELECT FROM {ops}.runs r
                               WHERE r.run_id = v_key.head_run_id AND r.finished_at IS NULL
                                 AND r.project_id = v_key.project_id AND r.concurrency_key = v_key.concurrency_key);
        PERFORM {ops}.pass_key(v_key.project_id, v_key.concurrency_key, v_key.head_run_id);
        v_repaired := v_repaired + 1;
    END LOOP;
    -- Runs in line for a key without a row.
    FOR v_key IN
        SELECT r.run_id, r.project_id, r.concurrency_key, r.priority, r.ready_at FROM {ops}.runs r
         WHERE r.gate = 'key' AND r.concurrency_key IS NOT NULL
           AND NOT EXISTS (SELECT FROM {ops}.concurrency_keys k
                            WHERE k.project_id = r.project_id AND k.concurrency_key = r.concurrency_key)
         ORDER BY r.project_id, r.concurrency_key, r.priority DESC, r.ready_at LIMIT p_limit
           FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE {ops}.runs SET gate = coalesce({ops}.enter_key(v_key.run_id, v_key.project_id, v_key.concurrency_key,
            v_key.priority, v_key.ready_at, false), 'key') WHERE run_id = v_key.run_id;
        v_repaired := v_repaired + 1;
    END LOOP;
    RETURN v_repaired;
END
$$;
