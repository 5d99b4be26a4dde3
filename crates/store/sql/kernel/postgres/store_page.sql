-- Stores a page: the new or changed records, the position of the partition, the page, the end of its message, and the
-- message of the next page. The order is fixed, so that two pages never wait for each other. Returns the epoch of the
-- next message if the worker keeps it; NULL if it does not, or if that message was sent before.
--
-- A function, because it needs one round trip: as eight statements of a transaction, a page spent most of its time
-- waiting between them. It has its caller's rights. PostgreSQL only: SQLite has no round trips and runs the statements.
CREATE FUNCTION {ops}.store_page(
    p_run_id      uuid,
    p_partition   text,
    p_offset      integer,
    p_pass        integer,
    p_next_offset integer,
    p_shift       integer,
    p_fetched     integer,
    p_stored      integer,
    p_rejected    integer,
    p_page_hash   bytea,
    p_record_ids  text[],
    p_record_uuids uuid[],
    p_feed        text,
    p_ids         text[],
    p_offers      text[],
    p_payloads    text[],
    p_hashes      bytea[],
    p_queue       text,
    p_message_id  text,
    p_generation  integer,
    p_epoch       integer,
    p_worker      uuid,
    p_next_id     text,
    p_next_body   jsonb,
    p_next_run    text,
    p_next_trace  text,
    p_keeps       boolean,
    p_worker_name text,
    p_raw         text,
    p_raw_id      text,
    p_next_token  text,
    p_cursor_max  bigint,
    p_linked      boolean,
    p_now         timestamptz DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_now     timestamptz := {call_time};
    v_queue   {ops}.queues;
    v_changed integer;
    v_epoch   integer;
BEGIN
    -- One index search per record: unchanged records are neither locked nor written. Records are sorted by id. A
    -- statement with the name of another table is planned for each page, which takes a fifth of the time of a page. The
    -- table that every database has is named in a statement of its own, which keeps its plan.
    IF p_raw = 'raw_diamonds_nivoda' THEN
        INSERT INTO {sync}.raw_diamonds_nivoda AS r
            (supplier_stone_id, offer_id, run_id, payload, payload_hash, created_at, updated_at)
        SELECT g.id, g.offer, p_run_id, g.payload::jsonb, g.hash, v_now, v_now
          FROM unnest(p_ids, p_offers, p_payloads, p_hashes) AS g (id, offer, payload, hash)
         WHERE (SELECT r.payload_hash FROM {sync}.raw_diamonds_nivoda r
                 WHERE r.supplier_stone_id = g.id) IS DISTINCT FROM g.hash
            ON CONFLICT (supplier_stone_id) DO UPDATE
           SET offer_id = excluded.offer_id, run_id = excluded.run_id, payload = excluded.payload,
               payload_hash = excluded.payload_hash, updated_at = excluded.updated_at
         WHERE r.payload_hash <> excluded.payload_hash;
        GET DIAGNOSTICS v_changed = ROW_COUNT;
    ELSE
        EXECUTE format('
        INSERT INTO {sync}.%1$I AS r (%2$I, offer_id, run_id, payload, payload_hash, created_at, updated_at)
        SELECT g.id, g.offer, $5, g.payload::jsonb, g.hash, $6, $6
          FROM unnest($1, $2, $3, $4) AS g (id, offer, payload, hash)
         WHERE (SELECT r.payload_hash FROM {sync}.%1$I r WHERE r.%2$I = g.id) IS DISTINCT FROM g.hash
            ON CONFLICT (%2$I) DO UPDATE
           SET offer_id = excluded.offer_id, run_id = excluded.run_id, payload = excluded.payload,
               payload_hash = excluded.payload_hash, updated_at = excluded.updated_at
         WHERE r.payload_hash <> excluded.payload_hash', p_raw, p_raw_id)
          USING p_ids, p_offers, p_payloads, p_hashes, p_run_id, v_now;
        GET DIAGNOSTICS v_changed = ROW_COUNT;
    END IF;

    -- Compare-and-swap on the offset and the pass.
    UPDATE {sync}.partition_progress p
       SET next_offset = p_next_offset, shift = p_shift, state = 'fetching_pages', fetched = p.fetched + p_fetched,
           stored = p.stored + p_stored, changed = p.changed + v_changed,
           rejected = p.rejected + p_rejected,
           listed = p.listed + coalesce(cardinality(p_record_ids), cardinality(p_record_uuids)), faults = 0,
           error = NULL, updated_at = v_now, first_page_at = coalesce(p.first_page_at, v_now),
           next_token = p_next_token, cursor_max = greatest(p.cursor_max, p_cursor_max),
           linked = p.linked AND p_linked
     WHERE p.run_id = p_run_id AND p.partition_id = p_partition AND p.next_offset = p_offset AND p.pass = p_pass
       AND NOT p.completed AND NOT p.failed;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another worker has already stored the page' USING ERRCODE = 'TM005';
    END IF;

    INSERT INTO {ops}.pages (run_id, partition_id, page_offset, pass, fetched, stored, changed, page_hash, record_ids,
        stored_at, record_uuids)
    VALUES (p_run_id, p_partition, p_offset, p_pass, p_fetched, p_stored, v_changed,
        p_page_hash, p_record_ids, v_now, p_record_uuids);

    -- The worker and its epoch stay on the row, so that a repeated report is recognised.
    UPDATE {ops}.messages m
       SET state = 'done', ended_at = v_now, body = NULL
     WHERE m.queue = p_queue AND m.message_id = p_message_id AND m.generation = p_generation
       AND m.state = 'live' AND m.epoch = p_epoch AND m.locked_by = p_worker;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another worker has already stored the page' USING ERRCODE = 'TM005';
    END IF;

    IF NOT p_keeps THEN
        UPDATE {sync}.worker_runs w
           SET worker_id = p_worker_name,
               records_processed = (SELECT p.stored FROM {sync}.partition_progress p
                                     WHERE p.run_id = p_run_id AND p.partition_id = p_partition)
         WHERE w.run_id = p_run_id AND w.partition_id = p_partition;
    END IF;

    -- As message_send does: a row that was completed before the deduplication window is used again, and its epoch goes
    -- on.
    SELECT q.* INTO STRICT v_queue FROM {ops}.queues q WHERE q.queue = p_queue;
    INSERT INTO {ops}.messages AS m (queue, message_id, generation, grp, body, run_id, trace_id, enqueued_at,
        ready_at, visible_at, expires_at, locked_by, epoch, deliveries)
    VALUES (p_queue, p_next_id, p_generation, p_feed, p_next_body, p_next_run, p_next_trace, v_now, v_now,
        CASE WHEN p_keeps THEN v_now + v_queue.lock_secs * interval '1 second' ELSE v_now END,
        v_now + v_queue.expiry_secs * interval '1 second',
        CASE WHEN p_keeps THEN p_worker END, p_keeps::integer, p_keeps::integer)
        ON CONFLICT (queue, message_id, generation) DO UPDATE
       SET grp = excluded.grp, state = 'live', body = excluded.body, run_id = excluded.run_id,
           trace_id = excluded.trace_id, enqueued_at = excluded.enqueued_at, ready_at = excluded.ready_at,
           visible_at = excluded.visible_at, expires_at = excluded.expires_at, locked_by = excluded.locked_by,
           epoch = m.epoch + excluded.epoch, deliveries = excluded.deliveries,
           ended_at = NULL, dead_reason = NULL, last_error = NULL
     WHERE m.state = 'done' AND m.ended_at <= v_now - interval '1 second' * coalesce(v_queue.window_secs, 0)
    RETURNING m.epoch INTO v_epoch;

    RETURN CASE WHEN p_keeps THEN v_epoch END;
END
$$;
