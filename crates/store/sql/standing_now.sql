-- One look at everything that waits. A count stops at a hundred thousand, so that no scrape reads a large table whole.
-- $1 is the time, $2 the time before which a partition must have moved.
SELECT 'runs_queued' AS name, CAST(gate AS text) AS label, count(*) AS value, min(ready_at) AS since
  FROM (SELECT gate, ready_at FROM {ops}.runs WHERE gate IS NOT NULL LIMIT 100000) waiting GROUP BY gate
UNION ALL
SELECT 'runs_held', CAST(status AS text), count(*), NULL
  FROM (SELECT status FROM {ops}.runs WHERE claimed_by IS NOT NULL AND finished_at IS NULL LIMIT 100000) held
 GROUP BY status
UNION ALL
SELECT 'queue', CAST(queue AS text), 0, NULL FROM {ops}.queues
UNION ALL
SELECT 'queue_ready', CAST(queue AS text), count(*), min(enqueued_at)
  FROM (SELECT queue, enqueued_at FROM {ops}.messages WHERE state = 'live' AND visible_at <= $1
         LIMIT 100000) ready GROUP BY queue
UNION ALL
SELECT CASE WHEN is_locked THEN 'queue_in_flight' ELSE 'queue_delayed' END, CAST(queue AS text), count(*), NULL
  FROM (SELECT queue, locked_by IS NOT NULL AS is_locked FROM {ops}.messages
         WHERE state = 'live' AND visible_at > $1 LIMIT 100000) later GROUP BY queue, is_locked
UNION ALL
SELECT 'queue_dead', CAST(queue AS text), count(*), NULL
  FROM (SELECT queue FROM {ops}.messages WHERE state = 'dead' LIMIT 100000) dead GROUP BY queue
UNION ALL
SELECT 'partitions_stuck', CAST(s.feed AS text), count(*), NULL
  FROM {sync}.run_metadata s JOIN {sync}.partition_progress p ON p.run_id = s.run_id
 WHERE s.state NOT IN ('completed', 'failed') AND p.state NOT IN ('completed', 'failed') AND p.updated_at < $2
 GROUP BY s.feed
UNION ALL
SELECT 'sync_fetched', CAST(s.feed AS text), CAST(sum(p.fetched) AS bigint), NULL
  FROM {sync}.run_metadata s JOIN {sync}.partition_progress p ON p.run_id = s.run_id
 WHERE s.state NOT IN ('completed', 'failed') GROUP BY s.feed
UNION ALL
SELECT 'sync_consolidated', CAST(s.feed AS text), CAST(sum(p.consolidated) AS bigint), NULL
  FROM {sync}.run_metadata s JOIN {sync}.partition_progress p ON p.run_id = s.run_id
 WHERE s.state NOT IN ('completed', 'failed') GROUP BY s.feed
UNION ALL
SELECT 'watermark', CAST(feed AS text), 0, last_updated_at FROM {ops}.feeds
UNION ALL
SELECT 'feed_down', CAST(feed AS text), CASE WHEN circuit ->> 'state' = 'closed' THEN 0 ELSE 1 END, NULL
  FROM {ops}.feeds
UNION ALL
SELECT 'workers', '', count(*), NULL FROM {ops}.workers WHERE ended_at IS NULL
