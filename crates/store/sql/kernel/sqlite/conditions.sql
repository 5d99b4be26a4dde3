-- Conditions that several verbs share. A statement includes one by its name in braces.

-- fragment: caller_is_holder
-- Whether the caller names the current claim of run `r`. A NULL epoch or worker of the caller skips that check.
(coalesce(r.epoch = caller.epoch, true) AND coalesce(r.claimed_by = caller.worker, true))

-- fragment: caller_holds_run
-- The fence: whether the caller still holds run `r`.
(r.status IN ('claimed', 'running') AND {caller_is_holder})

-- fragment: finish_allowed
-- Whether run `r` may end with status `caller.status`. Any caller may cancel a run that has not ended.
CASE WHEN caller.status = 'cancelled' THEN r.status IN ('queued', 'claimed', 'running') ELSE {caller_holds_run} END

-- fragment: label_set_is_paused
-- The pause rule: whether the project or the lane of label set `s` is paused at $4.
EXISTS (SELECT 1 FROM flags f
         WHERE f.flag = 'paused'
           AND f.scope IN (CASE WHEN '{sync_label}' IN (SELECT l.value FROM json_each(s.labels) l)
                                THEN 'lane:sync' ELSE 'lane:ops' END, 'project:' || s.project_id)
           AND (f.until_at IS NULL OR f.until_at > $4))

-- fragment: label_set_is_claimable
-- Whether a worker with the labels $1 and the projects $2 may claim from label set `s` at $4. NULL: all projects.
(NOT EXISTS (SELECT 1 FROM json_each(s.labels) need
              WHERE need.value NOT IN (SELECT offer.value FROM json_each($1) offer))
 AND ($2 IS NULL OR s.project_id IN (SELECT p.value FROM json_each($2) p))
 AND NOT {label_set_is_paused})
