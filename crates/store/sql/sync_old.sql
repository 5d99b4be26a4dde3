-- Syncs that ended long ago, but for the last completed full one of each feed, which may still be asked what it saw.
SELECT CAST(m.run_id AS text) AS value FROM {sync}.run_metadata m
 WHERE m.state IN ('completed', 'failed') AND m.updated_at < $1
   AND (m.state <> 'completed' OR m.run_type <> 'full'
        OR EXISTS (SELECT 1 FROM {sync}.run_metadata n
                    WHERE n.feed = m.feed AND n.state = 'completed' AND n.run_type = 'full'
                      AND n.started_at > m.started_at))
 ORDER BY m.started_at LIMIT $2
