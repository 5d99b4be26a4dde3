-- Receives messages and locks them. The groups are found by one index search each. If there are several, each gets a
-- share: locked messages count as taken (as far as the oldest ones of the group show, where most of them are), and ties
-- rotate with the turn. The rows are locked group by group, and rows that others have locked are skipped. Messages that
-- have expired or were delivered too often become dead letters and are returned as such.
--
-- A function, because behind a pooler a statement of this size is planned with each call, and its estimated cost would
-- make PostgreSQL compile it for longer than it runs. PostgreSQL only: on SQLite these are the statements
-- message_receive and message_release.
CREATE FUNCTION {ops}.receive_messages(
    p_queue  text,
    p_worker uuid,
    p_limit  bigint,
    p_now    timestamptz DEFAULT NULL,
    p_except text[] DEFAULT '{}',
    p_turn   bigint DEFAULT 0)
RETURNS TABLE (queue text, message_id text, generation integer, grp text, state text, body jsonb, run_id text,
               trace_id text, enqueued_at timestamptz, visible_at timestamptz, expires_at timestamptz, locked_by uuid,
               epoch integer, deliveries integer, deliveries_max integer, ended_at timestamptz, dead_reason text,
               last_error text)
LANGUAGE plpgsql {verb} SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now     timestamptz := {call_time};
    v_limit   bigint := least(p_limit, {batch_max});
    v_queue   {ops}.queues;
    v_group   text COLLATE "C" := '';
    v_due     text[] := '{}';
    v_waiting bigint[] := '{}';
    v_held    bigint[] := '{}';
    v_share   record;
    v_some    tid[];
    v_rows    tid[];
    v_taken   bigint;
BEGIN
    IF EXISTS (SELECT FROM {ops}.workers w WHERE w.worker_id = p_worker AND w.draining) THEN
        -- A draining worker gets no new messages. It learns that it drains only with its next heartbeat.
        RETURN;
    END IF;
    SELECT q.* INTO v_queue FROM {ops}.queues q WHERE q.queue = p_queue;
    LOOP
        SELECT m.grp INTO v_group FROM {ops}.messages m
         WHERE m.queue = p_queue AND m.state = 'live' AND m.grp > v_group ORDER BY m.grp LIMIT 1;
        EXIT WHEN v_group IS NULL;
        CONTINUE WHEN v_group = ANY (p_except);
        v_due := v_due || v_group;
    END LOOP;

    IF cardinality(v_due) = 1 THEN
        SELECT array_agg(p.ctid) INTO v_rows
          FROM (SELECT m.ctid FROM {ops}.messages m
                 WHERE m.queue = p_queue AND m.grp = v_due[1] AND m.state = 'live' AND m.ready_at <= v_now
                   AND m.visible_at <= v_now
                 ORDER BY m.ready_at LIMIT v_limit FOR UPDATE SKIP LOCKED) p;
    ELSE
        FOREACH v_group IN ARRAY v_due LOOP
            v_waiting := v_waiting || (SELECT count(*) FROM (
                SELECT FROM {ops}.messages m
                 WHERE m.queue = p_queue AND m.grp = v_group AND m.state = 'live' AND m.ready_at <= v_now
                   AND m.visible_at <= v_now
                 ORDER BY m.ready_at LIMIT v_limit) w);
            v_held := v_held || (SELECT count(*) FROM (
                SELECT m.locked_by, m.visible_at FROM {ops}.messages m
                 WHERE m.queue = p_queue AND m.grp = v_group AND m.state = 'live' AND m.ready_at <= v_now
                 ORDER BY m.ready_at LIMIT 100 + v_limit) h WHERE h.locked_by IS NOT NULL AND h.visible_at > v_now);
        END LOOP;
        FOR v_share IN
            SELECT s.grp, count(*) AS quota
              FROM (SELECT d.grp
                      FROM unnest(v_due, v_waiting, v_held) WITH ORDINALITY AS d (grp, waiting, held, place),
                           generate_series(1, d.waiting) AS rank
                     ORDER BY d.held + rank, (d.place + p_turn) % cardinality(v_due)
                     LIMIT v_limit) s
             GROUP BY s.grp
        LOOP
            SELECT array_agg(p.ctid) INTO v_some
              FROM (SELECT m.ctid FROM {ops}.messages m
                     WHERE m.queue = p_queue AND m.grp = v_share.grp AND m.state = 'live' AND m.ready_at <= v_now
                       AND m.visible_at <= v_now
                     ORDER BY m.ready_at LIMIT v_share.quota FOR UPDATE SKIP LOCKED) p;
            v_rows := v_rows || v_some;
        END LOOP;
    END IF;

    RETURN QUERY
    UPDATE {ops}.messages m
       SET epoch = m.epoch + 1, deliveries = m.deliveries + 1, locked_by = p_worker,
           visible_at = v_now + v_queue.lock_secs * interval '1 second'
     WHERE m.ctid = ANY (v_rows) AND m.expires_at > v_now AND m.deliveries < v_queue.deliveries_max
    RETURNING m.queue, m.message_id, m.generation, m.grp, m.state, m.body, m.run_id, m.trace_id, m.enqueued_at,
              m.visible_at, m.expires_at, m.locked_by, m.epoch, m.deliveries, v_queue.deliveries_max, m.ended_at,
              m.dead_reason, m.last_error;
    GET DIAGNOSTICS v_taken = ROW_COUNT;
    IF v_taken = cardinality(v_rows) THEN
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE {ops}.messages m
       SET state = 'dead', ended_at = v_now, epoch = m.epoch + 1, locked_by = NULL,
           dead_reason = CASE WHEN m.expires_at <= v_now THEN 'expired' ELSE 'deliveries' END
     WHERE m.ctid = ANY (v_rows) AND (m.expires_at <= v_now OR m.deliveries >= v_queue.deliveries_max)
    RETURNING m.queue, m.message_id, m.generation, m.grp, m.state, m.body, m.run_id, m.trace_id, m.enqueued_at,
              m.visible_at, m.expires_at, m.locked_by, m.epoch, m.deliveries, v_queue.deliveries_max, m.ended_at,
              m.dead_reason, m.last_error;
END
$$;

-- Ends the locks of one worker process, or of all processes that have ended. Expired locks need no release: nothing is
-- read once the last worker has been dead for longer than a lock lasts. A message keeps its position in the queue.
CREATE FUNCTION {ops}.release_messages(p_worker uuid DEFAULT NULL, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (queue text, message_id text, generation integer)
LANGUAGE plpgsql {verb} SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := {call_time};
    v_queue text COLLATE "C";
    v_group text COLLATE "C";
BEGIN
    IF p_worker IS NULL AND NOT EXISTS (
        SELECT FROM {ops}.workers w
         WHERE w.ended_at > v_now - interval '1 second' * (SELECT max(q.lock_secs) FROM {ops}.queues q)) THEN
        RETURN;
    END IF;
    FOR v_queue IN SELECT q.queue FROM {ops}.queues q LOOP
        v_group := '';
        LOOP
            SELECT m.grp INTO v_group FROM {ops}.messages m
             WHERE m.queue = v_queue AND m.state = 'live' AND m.grp > v_group ORDER BY m.grp LIMIT 1;
            EXIT WHEN v_group IS NULL;
            RETURN QUERY
            UPDATE {ops}.messages m
               SET locked_by = NULL, visible_at = m.ready_at
             WHERE m.queue = v_queue AND m.grp = v_group AND m.state = 'live' AND m.ready_at <= v_now
               AND m.visible_at > v_now
               AND (m.locked_by = p_worker
                    OR p_worker IS NULL AND m.locked_by IS NOT NULL
                       AND EXISTS (SELECT FROM {ops}.workers w
                                    WHERE w.worker_id = m.locked_by AND w.ended_at IS NOT NULL))
            RETURNING m.queue, m.message_id, m.generation;
        END LOOP;
    END LOOP;
END
$$;
