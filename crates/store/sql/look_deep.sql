-- Counts no further than it has to, however many wait.
SELECT 'project:' || s.project_id AS subject, s.project_id AS project_id,
       (SELECT count(*) FROM (SELECT 1 AS one FROM {ops}.runs r
                               WHERE r.shelf_id = s.shelf_id AND r.gate = 'open' LIMIT $1) AS few) AS waiting
  FROM {ops}.shelves s
UNION ALL
SELECT 'queue:' || q.queue, NULL,
       (SELECT count(*) FROM (SELECT 1 AS one FROM {ops}.messages m
                               WHERE m.queue = q.queue AND m.state = 'live' LIMIT $1) AS few)
  FROM {ops}.queues q
