-- Conditions and settings that several functions share. A function includes one by its name in braces: the text is
-- compiled into the function, so that a shared condition costs no call.

-- fragment: caller_is_holder
-- Whether the caller names the current claim of `run`. A NULL p_epoch or p_worker_id skips that check.
(coalesce(run.epoch = p_epoch, true) AND coalesce(run.claimed_by = p_worker_id, true))

-- fragment: caller_holds_run
-- The fence: whether the caller still holds `run`.
(run.status IN ('claimed', 'running') AND {caller_is_holder})

-- fragment: finish_allowed
-- Whether `run` may end with p_status. Any caller may cancel a run that has not ended. False if there is no run.
coalesce(CASE WHEN p_status = 'cancelled' THEN run.status IN ('queued', 'claimed', 'running')
              ELSE {caller_holds_run} END, false)

-- fragment: label_set_is_paused
-- The pause rule: whether the project or the lane of label set `s` is paused at v_now.
EXISTS (SELECT FROM {ops}.flags f
         WHERE f.flag = 'paused'
           AND f.scope IN (CASE WHEN '{sync_label}' = ANY (s.labels) THEN 'lane:sync' ELSE 'lane:ops' END,
                           'project:' || s.project_id)
           AND (f.until_at IS NULL OR f.until_at > v_now))

-- fragment: label_set_is_claimable
-- Whether a worker with p_labels and p_projects may claim from label set `s` at v_now. NULL p_projects: all projects.
(s.labels <@ p_labels
 AND (p_projects IS NULL OR s.project_id = ANY (p_projects))
 AND NOT {label_set_is_paused})

-- fragment: queue_field_list
-- The fields of a request of queue_runs: the parameters of queue_run.
project, env, git_sha, git_ref, metadata, idempotency_key, priority, available_at, expires_at, max_attempts, max_losses,
backoff_secs, timeout_secs, concurrency_key, labels, run_id, kind

-- fragment: queue_field_names
'{{queue_field_list}}'::text[]

-- fragment: queue_fields
project text, env text, git_sha text, git_ref text, metadata jsonb, idempotency_key text, priority integer,
available_at timestamptz, expires_at timestamptz, max_attempts integer, max_losses integer, backoff_secs integer,
timeout_secs integer, concurrency_key text, labels text[], run_id text, kind text

-- fragment: queue_request
-- The request `a` as queue_run stores it for an idempotency key.
jsonb_build_object('env', a.env, 'git_sha', a.git_sha, 'git_ref', a.git_ref, 'metadata', a.metadata,
    'priority', a.priority, 'max_attempts', a.max_attempts, 'max_losses', a.max_losses, 'backoff_secs', a.backoff_secs,
    'timeout_secs', a.timeout_secs, 'concurrency_key', a.concurrency_key, 'labels', a.labels::text[],
    'available_at', extract(epoch FROM a.available_at), 'expires_at', extract(epoch FROM a.expires_at), 'kind', a.kind)

-- fragment: call_time
-- The time of a call. Only members of tidemill_clock may pass p_now. Without p_now this calls no function of ours.
CASE WHEN p_now IS NULL THEN clock_timestamp() ELSE {ops}.given_time(p_now) END

-- fragment: verb
-- Settings of a function that users call. It has its owner's rights, finds names only in pg_catalog, and keeps one
-- plan per session.
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan

-- fragment: time_min
-- Bounds of the times that Rust can read and RFC 3339 can write.
'0001-01-01 00:00:00+00'::pg_catalog.timestamptz

-- fragment: time_max
'9999-12-31 00:00:00+00'::pg_catalog.timestamptz

-- fragment: insert_run
-- Inserts the run of a request, with the variables of queue_run.
INSERT INTO {ops}.runs (run_id, project_id, env_id, git_sha, git_ref, metadata, idempotency_key, request,
    priority, label_set_id, concurrency_key, gate, ready_at, available_at, expires_at, attention_at,
    timeout_secs, max_attempts, max_losses, backoff_secs, kind, last_seq, queued_at, created_at, updated_at)
VALUES (v_run_id, p_project_id, v_env_id, p_git_sha, p_git_ref, p_metadata, p_idempotency_key, v_request,
    p_priority, v_label_set, p_concurrency_key, v_gate, greatest(v_now, p_available_at), p_available_at,
    p_expires_at, CASE v_gate WHEN 'time' THEN least(p_available_at, p_expires_at) ELSE p_expires_at END,
    p_timeout_secs, p_max_attempts, p_max_losses, p_backoff_secs, p_kind, 1, v_now, v_now, v_now)

-- fragment: claim_max
least(greatest(p_limit, 1), {batch_max})

-- fragment: claim_first
-- First half of the statement that claims open runs of v_label_set; claim_last is the other half. Callers may add a
-- condition on `q` between them. Finds the rows by ctid, which does not change while they are locked: a second search
-- by id would double the cost.
RETURN QUERY
    WITH claimed AS (
        UPDATE {ops}.runs r
           SET status = 'claimed', gate = NULL, claimed_by = p_worker_id, worker_id = p_worker,
               claim_request = p_request_id, epoch = least(r.epoch, 2147483646) + 1, started_at = v_now,
               -- NULL if the worker has promised no heartbeats: the sweeper does not fail such a run for silence
               -- (ADR 24).
               lease_secs = CASE WHEN p_worker IS NULL THEN p_lease_secs ELSE coalesce(p_lease_secs, {lease_secs}) END,
               lease_until = v_now + make_interval(secs => coalesce(p_lease_secs, {lease_secs})),
               attention_at = v_now + make_interval(secs => coalesce(p_lease_secs, {lease_secs})),
               last_seq = r.last_seq + 1, updated_at = v_now
         WHERE r.ctid = ANY (ARRAY(
            SELECT q.ctid FROM {ops}.runs q
             WHERE q.label_set_id = v_label_set AND q.gate = 'open'

-- fragment: claim_last
             ORDER BY q.priority DESC, q.ready_at, q.run_id LIMIT coalesce(v_left, {claim_max})
               FOR UPDATE SKIP LOCKED))
        RETURNING r.run_id, r.project_id, r.env_id, r.git_sha, r.git_ref, r.metadata,
                  r.epoch, r.attempt, r.timeout_secs, r.lease_until, r.kind, r.last_seq),
    recorded AS (
        INSERT INTO {ops}.run_steps (created_at, seq, step, run_id, detail)
        SELECT v_now, c.last_seq, 'c', c.run_id, p_worker_id FROM claimed c)
    SELECT c.run_id, c.project_id, c.env_id, c.git_sha, c.git_ref, c.metadata,
           c.epoch, c.attempt, c.timeout_secs, c.lease_until, c.kind
      FROM claimed c

-- fragment: enter_running
-- If the caller holds the claimed run, moves it to running and records the step. One statement, because starting a
-- second one costs as much as the insert.
WITH started AS (
    UPDATE {ops}.runs run
       SET status = 'running', updated_at = v_now,
           lease_until = v_now + make_interval(secs => coalesce(run.lease_secs, {lease_secs})),
           -- A registered worker stops the command itself and reports it: the deadline includes the time for that.
           deadline_at = v_now + make_interval(secs => run.timeout_secs
               + CASE WHEN run.worker_id IS NULL THEN 0 ELSE {cancel_grace_secs} END),
           attention_at = least(run.attention_at, v_now + make_interval(secs => run.timeout_secs)),
           last_seq = run.last_seq + 1
     WHERE run.run_id = p_run_id AND run.status = 'claimed' AND {caller_is_holder}
    RETURNING run.last_seq)
INSERT INTO {ops}.run_steps (created_at, seq, step, run_id)
SELECT v_now, s.last_seq, 'r', p_run_id FROM started s

-- fragment: finish_running
-- Ends a running run of lane ops as p_status, and records that, if the caller holds it. v_outcome is NULL if no run
-- changed. It is `oversize` if the merged metadata is too large, and `sequel` if after_finish has something to do.
WITH ended AS (
    UPDATE {ops}.runs run
       SET status = p_status, finished_at = v_now, updated_at = v_now, end_cause = 'reported',
           input = CASE WHEN p_status = 'success' OR p_metadata = '{}'::jsonb THEN run.input
                        ELSE coalesce(run.input, run.metadata) END,
           metadata = run.metadata || p_metadata, attention_at = NULL, last_seq = run.last_seq + 1
     WHERE run.run_id = p_run_id AND run.status = 'running' AND run.lane = 'ops' AND {caller_is_holder}
    RETURNING run.last_seq, run.metadata, run.retry_of),
recorded AS (
    INSERT INTO {ops}.run_steps (created_at, seq, step, run_id)
    SELECT v_now, e.last_seq, CASE p_status WHEN 'success' THEN 's' ELSE 'f' END, p_run_id FROM ended e)
SELECT CASE WHEN p_metadata <> '{}'::jsonb AND octet_length(e.metadata::text) > {metadata_max} THEN 'oversize'
            WHEN p_status = 'failed' OR e.retry_of IS NOT NULL OR e.metadata ?| '{artifacts,schedule}' THEN 'sequel'
            ELSE 'applied' END
  INTO v_outcome FROM ended e

-- fragment: queue_usual_first
-- Queues a run for a request without keys, labels and times, whose values v_metadata are checked. Inserts no row if the
-- environment or its label set does not exist. The id stands between this and queue_usual_middle.
RETURN QUERY
    WITH queued AS (
        INSERT INTO {ops}.runs (run_id, project_id, env_id, git_sha, git_ref, metadata, priority, label_set_id,
            ready_at, timeout_secs, max_attempts, max_losses, backoff_secs, kind, last_seq, queued_at, created_at,
            updated_at)
        SELECT

-- fragment: queue_usual_middle
-- The other values of the run. ON CONFLICT may stand between this and queue_usual_last.
             , p_project_id, e.env_id, p_git_sha, p_git_ref, p_metadata, p_priority, s.label_set_id,
               v_now, p_timeout_secs, p_max_attempts, p_max_losses, p_backoff_secs, p_kind, 1, v_now, v_now, v_now
          FROM {ops}.environments e
          JOIN {ops}.label_sets s ON s.project_id = e.project_id AND s.labels = '{}'
         WHERE e.project_id = p_project_id AND e.env_type = p_env

-- fragment: queue_usual_last
-- Records the run that queue_usual_first has inserted, and returns it.
        RETURNING run_id, env_id),
    recorded AS (
        INSERT INTO {ops}.run_steps (created_at, seq, step, run_id, env_id)
        SELECT v_now, 1, 'q', q.run_id, q.env_id FROM queued q)
    SELECT q.run_id, 'queued', v_now, true FROM queued q
     WHERE (p_wake AND EXISTS (SELECT FROM {ops}.workers w WHERE w.waiting)) IS NOT TRUE
        OR pg_notify('{channel}', '') IS NOT NULL

-- fragment: new_run_id
-- A new id with the time v_now: a UUID of version 7, whose text the type uuid formats. An id is no secret, so random()
-- suffices; gen_random_uuid() would cost ten times as much.
'run-' || (lpad(to_hex((extract(epoch FROM v_now) * 1000)::bigint), 12, '0')
    || to_hex(28672 + (random() * 4095)::integer) || to_hex(32768 + (random() * 16383)::integer)
    || substr(to_hex(281474976710656 + (random() * 281474976710655)::bigint), 2))::uuid

-- fragment: run_id_is_ours
-- Whether p_run_id has the form that new_run_id gives an id. The check is cheaper than a regular expression; it admits
-- only ids that check_run_id admits.
(starts_with(p_run_id, 'run-') AND octet_length(p_run_id) = 40
 AND translate(p_run_id, '0123456789abcdef-run', '') = '')

-- fragment: document_is_plain
-- Whether the document with the text v_metadata is small, and contains neither a large number nor many levels.
(octet_length(v_metadata) <= 16
 OR octet_length(v_metadata) <= 2 * {json_depth_max} AND v_metadata !~ '[0-9]{16}'
 OR octet_length(v_metadata) <= {metadata_max} AND v_metadata !~ '[0-9]{16}'
     AND length(v_metadata) - length(translate(v_metadata, '[{', '')) <= {json_depth_max})

-- fragment: queue_many_first
-- Inserts the runs of queue_runs, with its variables, in the lock order of new runs: the first request of a repeated
-- key queues the run. ON CONFLICT may stand between this and queue_many_last.
WITH queued AS (
    INSERT INTO {ops}.runs (run_id, project_id, env_id, git_sha, git_ref, metadata, idempotency_key, request,
        priority, label_set_id, concurrency_key, gate, ready_at, available_at, expires_at, attention_at,
        timeout_secs, max_attempts, max_losses, backoff_secs, kind, last_seq, queued_at, created_at, updated_at)
    SELECT a.run_id, a.project, a.env_id, a.git_sha, a.git_ref, a.metadata, a.idempotency_key,
        CASE WHEN a.idempotency_key IS NOT NULL THEN {queue_request} END,
        a.priority, a.label_set_id, a.concurrency_key, a.gate, greatest(v_now, a.available_at), a.available_at,
        a.expires_at, CASE a.gate WHEN 'time' THEN least(a.available_at, a.expires_at) ELSE a.expires_at END,
        a.timeout_secs, a.max_attempts, a.max_losses, a.backoff_secs, a.kind, 1, v_now, v_now, v_now
      FROM unnest(v_run_ids, v_projects, v_envs, v_env_ids, v_shas, v_refs, v_metadata, v_keys, v_priorities,
                  v_label_sets, v_sorted, v_lines, v_gates, v_available, v_expires, v_timeouts, v_attempts,
                  v_losses, v_backoffs, v_kinds)
           WITH ORDINALITY a (run_id, project, env, env_id, git_sha, git_ref, metadata, idempotency_key, priority,
               label_set_id, labels, concurrency_key, gate, available_at, expires_at, timeout_secs, max_attempts,
               max_losses, backoff_secs, kind, position)
     ORDER BY a.project COLLATE "C", a.idempotency_key COLLATE "C",
              CASE WHEN a.idempotency_key IS NULL THEN a.run_id END COLLATE "C", a.position

-- fragment: queue_many_last
-- Records the runs that queue_many_first has inserted.
    RETURNING run_id, env_id),
recorded AS (
    INSERT INTO {ops}.run_steps (created_at, seq, step, run_id, env_id)
    SELECT v_now, 1, 'q', q.run_id, q.env_id FROM queued q)
SELECT array_agg(q.run_id) INTO v_created FROM queued q
