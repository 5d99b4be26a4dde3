-- Differs: there are no row locks to skip; this is the only writer, so the messages are ranked and taken as they are.
-- The groups are found by one look each. Where there are several, each gets a share: what a group has in flight counts
-- as taken, as far as its oldest messages tell, and ties go round with the turn. What has expired, or was delivered as
-- often as it may be, becomes a dead letter, and is returned as one. A process that drains gets nothing: it learns of
-- that with its next beat, which may be a while.
UPDATE {ops}.messages
   SET epoch = epoch + 1,
       deliveries = deliveries + (expires_at > $4 AND deliveries <
           (SELECT q.deliveries_max FROM {ops}.queues q WHERE q.queue = $1)),
       locked_by = CASE WHEN expires_at > $4 AND deliveries <
           (SELECT q.deliveries_max FROM {ops}.queues q WHERE q.queue = $1) THEN $2 END,
       visible_at = CASE WHEN expires_at > $4 AND deliveries <
           (SELECT q.deliveries_max FROM {ops}.queues q WHERE q.queue = $1)
           THEN $4 + 1000000 * (SELECT q.lock_secs FROM {ops}.queues q WHERE q.queue = $1) ELSE visible_at END,
       state = CASE WHEN expires_at > $4 AND deliveries <
           (SELECT q.deliveries_max FROM {ops}.queues q WHERE q.queue = $1) THEN 'live' ELSE 'dead' END,
       ended_at = CASE WHEN expires_at <= $4 OR deliveries >=
           (SELECT q.deliveries_max FROM {ops}.queues q WHERE q.queue = $1) THEN $4 END,
       dead_reason = CASE WHEN expires_at <= $4 THEN 'expired' WHEN deliveries >=
           (SELECT q.deliveries_max FROM {ops}.queues q WHERE q.queue = $1) THEN 'deliveries' END
 WHERE rowid IN (
       WITH RECURSIVE found (grp) AS (
           SELECT min(m.grp) FROM {ops}.messages m WHERE m.queue = $1 AND m.state = 'live'
              AND NOT EXISTS (SELECT 1 FROM {ops}.workers d WHERE d.worker_id = $2 AND d.draining)
           UNION ALL
           SELECT (SELECT min(m.grp) FROM {ops}.messages m
                    WHERE m.queue = $1 AND m.state = 'live' AND m.grp > f.grp)
             FROM found f WHERE f.grp IS NOT NULL
       ), due AS (
           SELECT f.grp, count(*) OVER () AS groups, row_number() OVER (ORDER BY f.grp) AS place
             FROM found f
            WHERE f.grp IS NOT NULL AND f.grp NOT IN (SELECT value FROM json_each($5))
              AND EXISTS (SELECT 1 FROM {ops}.messages m WHERE m.queue = $1 AND m.grp = f.grp AND m.state = 'live'
                             AND m.ready_at <= $4 AND m.visible_at <= $4)
       ), ranked AS (
           SELECT m.rowid AS id, (d.place + $6) % d.groups AS tie,
                  row_number() OVER (PARTITION BY d.grp ORDER BY m.ready_at, m.rowid) + CASE WHEN d.groups > 1
                  THEN (SELECT count(*)
                          FROM (SELECT h.locked_by, h.visible_at FROM {ops}.messages h
                                 WHERE h.queue = $1 AND h.grp = d.grp AND h.state = 'live' AND h.ready_at <= $4
                                 ORDER BY h.ready_at LIMIT 100 + $3) o
                         WHERE o.locked_by IS NOT NULL AND o.visible_at > $4) ELSE 0 END AS rank
             FROM due d
             JOIN {ops}.messages m ON m.rowid IN (
                  SELECT w.rowid FROM {ops}.messages w
                   WHERE w.queue = $1 AND w.grp = d.grp AND w.state = 'live' AND w.ready_at <= $4 AND w.visible_at <= $4
                   ORDER BY w.ready_at, w.rowid LIMIT $3)
       )
       SELECT r.id FROM ranked r ORDER BY r.rank, r.tie LIMIT $3)
RETURNING queue, message_id, generation, grp, state, body, run_id, trace_id, enqueued_at, visible_at, expires_at,
          locked_by, epoch, deliveries, (SELECT q.deliveries_max FROM {ops}.queues q WHERE q.queue = $1)
          AS deliveries_max, ended_at, dead_reason, last_error
