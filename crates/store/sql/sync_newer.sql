SELECT CAST(n.run_id AS text) AS value FROM {sync}.run_metadata n
  JOIN {sync}.run_metadata m ON m.run_id = $1 AND n.feed = m.feed
 WHERE n.state = 'completed' AND n.started_at > m.started_at AND n.run_id <> m.run_id
 ORDER BY n.started_at DESC LIMIT 1
