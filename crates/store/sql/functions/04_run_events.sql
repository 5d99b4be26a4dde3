-- The record of changes. It is written by triggers, so that a plain SQL statement is on record too; once per
-- statement, so that a batch pays once.

CREATE OR REPLACE FUNCTION {ops}.record_queued()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {ops}.run_events (run_id, seq, kind, level, message, payload, created_at)
    SELECT n.run_id, 1, 'transition', 'info', 'Run queued',
           CASE WHEN n.retry_of IS NULL THEN jsonb_build_object('to', n.status)
                ELSE jsonb_build_object('to', n.status, 'retry_of', n.retry_of, 'attempt', n.attempt) END,
           n.created_at
      FROM new_rows n;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER run_queued AFTER INSERT ON {ops}.runs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {ops}.record_queued();

-- The plan is made once, when it may be for one row: an outer join on a condition that holds for NULLs, too, cannot
-- become a nested loop, in which a batch would compare each row with each other.
CREATE OR REPLACE FUNCTION {ops}.record_change()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {ops}.run_events (run_id, seq, kind, level, message, payload, created_at)
    SELECT n.run_id,
           coalesce((SELECT e.seq FROM {ops}.run_events e WHERE e.run_id = n.run_id
                      ORDER BY e.seq DESC LIMIT 1), 0) + 1,
           'transition',
           CASE n.status WHEN 'failed' THEN 'error' WHEN 'cancelled' THEN 'warn' ELSE 'info' END,
           CASE n.status WHEN 'claimed' THEN 'Run claimed by worker' WHEN 'running' THEN 'Run started'
                         WHEN 'success' THEN 'Run succeeded' WHEN 'failed' THEN 'Run failed'
                         ELSE 'Run cancelled' END,
           CASE WHEN n.status = 'claimed'
                    THEN jsonb_build_object('from', o.status, 'to', n.status, 'worker_id', n.claimed_by)
                WHEN n.end_cause IS NOT NULL
                    THEN jsonb_build_object('from', o.status, 'to', n.status, 'cause', n.end_cause)
                ELSE jsonb_build_object('from', o.status, 'to', n.status) END,
           -- A verb may change a run twice at one time, so that updated_at stays as it is at the second change.
           CASE WHEN n.updated_at <> o.updated_at THEN n.updated_at
                ELSE coalesce(n.finished_at, CASE n.status WHEN 'claimed' THEN n.started_at END,
                              clock_timestamp()) END
      FROM new_rows n FULL JOIN old_rows o ON o.run_id = n.run_id
     WHERE n.status IS DISTINCT FROM o.status;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER run_changed AFTER UPDATE ON {ops}.runs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION {ops}.record_change();

-- Appends one event to a run whose row the caller has locked, and returns its id.
CREATE FUNCTION {ops}.write_event(p_run_id text, p_kind text, p_level text, p_message text, p_payload jsonb,
                                  p_key text, p_same_as text, p_now timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_id text;
BEGIN
    INSERT INTO {ops}.run_events (run_id, seq, kind, level, message, payload, event_key, same_as, created_at)
    SELECT p_run_id, coalesce(max(e.seq), 0) + 1, p_kind, p_level, p_message, p_payload, p_key, p_same_as, p_now
      FROM {ops}.run_events e WHERE e.run_id = p_run_id
    RETURNING event_id INTO v_id;
    RETURN v_id;
END
$$;

-- Records that a call was refused, once per run, verb and epoch: a zombie that asks every second is one line.
CREATE FUNCTION {ops}.record_refusal(p_run_id text, p_verb text, p_epoch integer, p_worker_id text,
                                     p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_same text := 'r:' || p_verb || ':' || p_epoch;
BEGIN
    IF NOT EXISTS (SELECT FROM {ops}.run_events e WHERE e.run_id = p_run_id AND e.same_as = v_same) THEN
        PERFORM {ops}.write_event(p_run_id, 'refusal', 'warn', 'Refused ' || p_verb || ': the lease is gone',
            jsonb_strip_nulls(jsonb_build_object('verb', p_verb, 'epoch', p_epoch, 'worker_id', p_worker_id)),
            NULL, v_same, p_now);
    END IF;
END
$$;
