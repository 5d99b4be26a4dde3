-- Fails a stalled run on behalf of a person who has looked: its worker is gone. With p_retry, queues a successor.
-- Asked again, it returns the same. A run that is not stalled belongs to its worker: cancel_run asks that one to stop.
CREATE FUNCTION {ops}.fail_run(p_run_id text, p_by text DEFAULT session_user, p_reason text DEFAULT NULL,
                               p_retry boolean DEFAULT false, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (outcome text, successor text)
LANGUAGE plpgsql {verb} AS $$
#variable_conflict use_column
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_run  record;
    v_next text;
BEGIN
    PERFORM {ops}.check_text('p_by', p_by), {ops}.check_text('p_reason', p_reason);
    -- This takes the run away from its worker: wait for a transaction that lease_guard protects.
    SELECT r.status, r.stalled_at, r.claimed_by, r.end_cause INTO v_run
      FROM {ops}.runs r WHERE r.run_id = p_run_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM {ops}.refuse_run(p_run_id);
    ELSIF v_run.status = 'running' AND v_run.stalled_at IS NOT NULL THEN
        PERFORM {ops}.end_run(p_run_id, 'failed', 'lost', jsonb_strip_nulls(jsonb_build_object(
            'error', 'worker lost', 'original_worker', v_run.claimed_by, 'failed_by', p_by,
            'reason', p_reason)), v_now);
        IF p_retry THEN
            v_next := {ops}.follow_run(p_run_id, 0, 0, NULL, v_now);
        END IF;
        RETURN QUERY SELECT 'applied'::text, v_next;
    ELSIF v_run.status = 'failed' AND v_run.stalled_at IS NOT NULL AND v_run.end_cause = 'lost' THEN
        IF p_retry THEN
            v_next := {ops}.follow_run(p_run_id, 0, 0, NULL, v_now);
        END IF;
        RETURN QUERY SELECT 'duplicate'::text,
            coalesce(v_next, (SELECT s.run_id FROM {ops}.runs s WHERE s.retry_of = p_run_id));
    ELSE
        RAISE EXCEPTION 'run % is %, and not stalled', p_run_id, v_run.status USING ERRCODE = 'TM009',
            HINT = format('Run `tidemill run cancel %s` to stop it.', p_run_id);
    END IF;
END
$$;
