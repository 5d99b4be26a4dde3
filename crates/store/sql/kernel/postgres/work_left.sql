-- Counts the runs that a worker could still have to execute: runs that fit it and are ready, wait for their key or
-- become available soon. Held runs whose worker may yet be lost count too. Only zero matters, so the count stops at
-- 100. Each branch reads an index that contains only such runs. Graphs are for controllers and agents: no worker waits
-- for one.
CREATE FUNCTION {ops}.work_left(p_labels text[] DEFAULT '{}', p_projects text[] DEFAULT NULL,
                                p_soon_secs integer DEFAULT 60, p_now timestamptz DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql {verb} AS $$
DECLARE
    v_now timestamptz := {call_time};
BEGIN
    RETURN (SELECT count(*) FROM (
        SELECT FROM (
            SELECT r.label_set_id FROM {ops}.runs r WHERE r.gate = 'open'
            UNION ALL
            SELECT r.label_set_id FROM {ops}.runs r WHERE r.gate = 'key' AND r.lane <> 'graph'
            UNION ALL
            SELECT r.label_set_id FROM {ops}.runs r
             WHERE r.gate = 'time' AND r.attention_at <= v_now + make_interval(secs => p_soon_secs)
               AND r.available_at <= v_now + make_interval(secs => p_soon_secs)
            UNION ALL
            SELECT r.label_set_id FROM {ops}.runs r
             WHERE r.claimed_by IS NOT NULL AND r.finished_at IS NULL AND r.lane <> 'graph') waiting
          JOIN {ops}.label_sets s ON s.label_set_id = waiting.label_set_id
         WHERE {label_set_is_claimable}
         LIMIT 100) a);
END
$$;
