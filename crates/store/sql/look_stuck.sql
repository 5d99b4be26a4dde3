-- What a person holds up is no news to them.
SELECT m.ops_run_id AS run_id, m.feed AS feed, count(*) AS stuck, min(p.updated_at) AS since
  FROM {sync}.run_metadata m
  JOIN {sync}.partition_progress p ON p.run_id = m.run_id
  JOIN {ops}.feeds f ON f.feed = m.feed
 WHERE m.state IN ('created', 'workers_running') AND p.state NOT IN ('completed', 'failed') AND p.updated_at < $1
   AND NOT EXISTS (SELECT 1 FROM {ops}.flags x WHERE x.flag = 'paused'
                      AND x.scope IN ('feed:' || m.feed, 'project:' || f.project_id, 'lane:sync'))
 GROUP BY m.ops_run_id, m.feed ORDER BY m.feed LIMIT 1000
