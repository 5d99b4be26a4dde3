-- Differs: a plain join; SQLite looks each run up by its key, and has no LATERAL.
-- Failed runs that nothing made good: no other try followed, and no newer sync of the feed was completed.
SELECT {run_columns}
  FROM {ops}.run_ends n
  JOIN {ops}.runs r ON r.run_id = n.run_id
  JOIN {ops}.shelves s ON s.shelf_id = r.shelf_id
 WHERE n.status = 'failed' AND n.run_id >= $1 AND n.run_id < $2 AND ($4 IS NULL OR r.project_id = $4)
   AND (SELECT t.run_id FROM {ops}.runs t WHERE t.retry_of = n.run_id) IS NULL
   AND (r.lane <> 'sync' OR (SELECT d.run_id FROM {sync}.run_metadata d
                              WHERE d.feed = substr(r.concurrency_key, 6) AND d.state = 'completed'
                                -- A late try was refused: it is as old as the sync that it was to go on with.
                                AND d.started_at > coalesce((SELECT m.started_at FROM {sync}.run_metadata m
                                                              WHERE m.ops_run_id = r.run_id),
                                                            (SELECT m.started_at FROM {sync}.run_metadata m
                                                              WHERE m.ops_run_id = r.retry_of), r.started_at)
                              LIMIT 1) IS NULL)
 ORDER BY n.run_id DESC LIMIT $3
