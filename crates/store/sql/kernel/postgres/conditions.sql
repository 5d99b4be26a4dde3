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

-- fragment: claim_first
-- Claims open runs of v_label_set, together with claim_last. A further condition on the runs `q` may stand between.
-- By ctid, which does not change while the rows are locked: a second search by id would double the cost.
RETURN QUERY
    WITH claimed AS (
        UPDATE {ops}.runs r
           SET status = 'claimed', gate = NULL, claimed_by = p_worker_id, worker_id = p_worker,
               claim_request = p_request_id, epoch = least(r.epoch, 2147483646) + 1, started_at = v_now,
               lease_secs = v_lease_secs, lease_until = v_until, attention_at = v_until,
               last_seq = r.last_seq + 1, updated_at = v_now
         WHERE r.ctid = ANY (ARRAY(
            SELECT q.ctid FROM {ops}.runs q
             WHERE q.label_set_id = v_label_set AND q.gate = 'open'

-- fragment: claim_last
             ORDER BY q.priority DESC, q.ready_at, q.run_id LIMIT v_left
               FOR UPDATE SKIP LOCKED))
        RETURNING r.run_id, r.project_id, r.env_id, r.git_sha, r.git_ref, r.metadata,
                  r.epoch, r.attempt, r.timeout_secs, r.lease_until, r.kind, r.last_seq),
    recorded AS (
        INSERT INTO {ops}.run_steps (created_at, seq, step, run_id, detail)
        SELECT v_now, c.last_seq, 'c', c.run_id, p_worker_id FROM claimed c)
    SELECT c.run_id, c.project_id, c.env_id, c.git_sha, c.git_ref, c.metadata,
           c.epoch, c.attempt, c.timeout_secs, c.lease_until, c.kind
      FROM claimed c
