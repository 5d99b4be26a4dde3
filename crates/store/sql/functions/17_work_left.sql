-- Counts what a worker could still have to do: runs that fit it and are ready, stand in line or come soon, and runs
-- in hand whose worker may yet be lost. For a worker that ends when nothing is left; bounded, since only zero matters.
-- Each branch reads an index that holds nothing but such runs. Graphs are for controllers and agents: no worker waits
-- for one.
CREATE FUNCTION {ops}.work_left(p_labels text[] DEFAULT '{}', p_projects text[] DEFAULT NULL,
                                p_soon_secs integer DEFAULT 60, p_now timestamptz DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql {verb} AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    RETURN (SELECT count(*) FROM (
        SELECT FROM (
            SELECT r.shelf_id FROM {ops}.runs r WHERE r.gate = 'open'
            UNION ALL
            SELECT r.shelf_id FROM {ops}.runs r WHERE r.gate = 'key' AND r.lane <> 'graph'
            UNION ALL
            SELECT r.shelf_id FROM {ops}.runs r
             WHERE r.gate = 'time' AND r.available_at <= v_now + make_interval(secs => p_soon_secs)
            UNION ALL
            SELECT r.shelf_id FROM {ops}.runs r
             WHERE r.claimed_by IS NOT NULL AND r.finished_at IS NULL AND r.lane <> 'graph') waiting
          JOIN {ops}.shelves s ON s.shelf_id = waiting.shelf_id
         WHERE s.labels <@ p_labels AND (p_projects IS NULL OR s.project_id = ANY (p_projects))
           AND NOT EXISTS (SELECT FROM {ops}.flags f
                            WHERE f.flag = 'paused'
                              AND f.scope IN (CASE WHEN '{sync_label}' = ANY (s.labels) THEN 'lane:sync'
                                                   ELSE 'lane:ops' END, 'project:' || s.project_id)
                              AND (f.until_at IS NULL OR f.until_at > v_now))
         LIMIT 100) a);
END
$$;
