-- Ends the locks of one worker process, or of all whose end is on record. A lock that has ended by itself needs nobody:
-- so nothing is read once the last worker has been dead for longer than a lock. A message keeps its place in line.
CREATE FUNCTION {ops}.release_messages(p_now timestamptz, p_worker uuid DEFAULT NULL)
RETURNS TABLE (queue text, message_id text, generation integer)
LANGUAGE plpgsql {verb} SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_queue text COLLATE "C";
    v_group text COLLATE "C";
BEGIN
    IF p_worker IS NULL AND NOT EXISTS (
        SELECT FROM {ops}.workers w
         WHERE w.ended_at > p_now - interval '1 second' * (SELECT max(q.lock_secs) FROM {ops}.queues q)) THEN
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
             WHERE m.queue = v_queue AND m.grp = v_group AND m.state = 'live' AND m.ready_at <= p_now
               AND m.visible_at > p_now
               AND (m.locked_by = p_worker
                    OR p_worker IS NULL AND m.locked_by IS NOT NULL
                       AND EXISTS (SELECT FROM {ops}.workers w
                                    WHERE w.worker_id = m.locked_by AND w.ended_at IS NOT NULL))
            RETURNING m.queue, m.message_id, m.generation;
        END LOOP;
    END LOOP;
END
$$;
