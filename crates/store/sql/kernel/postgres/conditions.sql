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
