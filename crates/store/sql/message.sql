-- Messages and queues.

-- fragment: message_columns
-- The columns of a message.
queue, message_id, generation, grp, state, body, run_id, trace_id, enqueued_at, visible_at, expires_at, locked_by,
epoch, deliveries, ended_at, dead_reason, last_error

-- name: message_send (postgres)
-- Returns the messages that were sent; the others are duplicates. A row that was completed before the deduplication
-- window is used again. Its epoch continues to increase, so that an old receipt never matches.
-- Differs: the messages are arrays on PostgreSQL, where the database may give the time, and one JSON text on SQLite.
INSERT INTO {ops}.messages AS m (queue, message_id, generation, grp, body, run_id, trace_id, enqueued_at, ready_at,
                                 visible_at, expires_at, locked_by, epoch, deliveries)
SELECT u.queue, u.message_id, u.generation, u.grp, u.body, u.run_id, u.trace_id, t.now,
       t.now + u.delay * interval '1 microsecond',
       t.now + CASE WHEN $10::uuid IS NULL THEN u.delay * interval '1 microsecond'
                    ELSE q.lock_secs * interval '1 second' END,
       t.now + u.delay * interval '1 microsecond' + q.expiry_secs * interval '1 second',
       $10, ($10 IS NOT NULL)::integer, ($10 IS NOT NULL)::integer
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) t,
       unnest($2::text[], $3::text[], $4::integer[], $5::text[], $6::jsonb[], $7::text[], $8::text[], $9::bigint[])
           AS u (queue, message_id, generation, grp, body, run_id, trace_id, delay)
  JOIN {ops}.queues q ON q.queue = u.queue
    ON CONFLICT (queue, message_id, generation) DO UPDATE
   SET grp = excluded.grp, state = 'live', body = excluded.body, run_id = excluded.run_id,
       trace_id = excluded.trace_id, enqueued_at = excluded.enqueued_at, ready_at = excluded.ready_at,
       visible_at = excluded.visible_at, expires_at = excluded.expires_at, locked_by = excluded.locked_by,
       epoch = m.epoch + excluded.epoch, deliveries = excluded.deliveries,
       ended_at = NULL, dead_reason = NULL, last_error = NULL
 WHERE m.state = 'done'
   AND m.ended_at <= excluded.enqueued_at - interval '1 second' * coalesce(
           (SELECT q.window_secs FROM {ops}.queues q WHERE q.queue = m.queue), 0)
RETURNING m.queue, m.message_id, m.generation, m.epoch, m.visible_at

-- name: message_send (sqlite)
INSERT INTO {ops}.messages AS m (queue, message_id, generation, grp, body, run_id, trace_id, enqueued_at, ready_at,
                                 visible_at, expires_at, locked_by, epoch, deliveries)
SELECT q.queue, json_extract(u.value, '$[1]'), json_extract(u.value, '$[2]'), json_extract(u.value, '$[3]'),
       json_extract(u.value, '$[4]'), json_extract(u.value, '$[5]'), json_extract(u.value, '$[6]'), $1,
       $1 + json_extract(u.value, '$[7]'),
       $1 + CASE WHEN $3 IS NULL THEN json_extract(u.value, '$[7]') ELSE q.lock_secs * 1000000 END,
       $1 + json_extract(u.value, '$[7]') + q.expiry_secs * 1000000,
       $3, $3 IS NOT NULL, $3 IS NOT NULL
  FROM json_each($2) u
  JOIN {ops}.queues q ON q.queue = json_extract(u.value, '$[0]')
 WHERE true
    ON CONFLICT (queue, message_id, generation) DO UPDATE
   SET grp = excluded.grp, state = 'live', body = excluded.body, run_id = excluded.run_id,
       trace_id = excluded.trace_id, enqueued_at = excluded.enqueued_at, ready_at = excluded.ready_at,
       visible_at = excluded.visible_at, expires_at = excluded.expires_at, locked_by = excluded.locked_by,
       epoch = m.epoch + excluded.epoch, deliveries = excluded.deliveries,
       ended_at = NULL, dead_reason = NULL, last_error = NULL
 WHERE m.state = 'done'
   AND m.ended_at <= excluded.enqueued_at - 1000000 * coalesce(
           (SELECT q.window_secs FROM {ops}.queues q WHERE q.queue = m.queue), 0)
RETURNING queue, message_id, generation, epoch, visible_at

-- name: message_receive (postgres)
-- Receives messages and locks them. On SQLite the groups are found by one index search each. If there are several, each
-- gets a share: locked messages count as taken, as far as the oldest ones of a group show, and ties rotate with the
-- turn. Messages that have expired or were delivered too often become dead letters and are returned as such. A draining
-- worker gets none: it learns that it drains only with its next heartbeat.
-- Differs: on PostgreSQL receivers run concurrently and skip locked rows, in the function receive_messages. SQLite has
-- one writer at a time.
SELECT queue, message_id, generation, grp, state, body, run_id, trace_id, enqueued_at, visible_at, expires_at,
       locked_by, epoch, deliveries, deliveries_max, ended_at, dead_reason, last_error
  FROM {ops}.receive_messages($1, $2, $3, $4, $5, $6)

-- name: message_receive (sqlite)
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

-- name: message_complete (postgres)
-- The worker and its epoch stay on the row, so that a repeated report is recognised.
-- Differs: the receipts are arrays on PostgreSQL, where the database may give the time, and one JSON text on SQLite.
UPDATE {ops}.messages m
   SET state = 'done', ended_at = coalesce($1::timestamptz, clock_timestamp()), body = NULL
  FROM unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::uuid[])
           AS u (queue, message_id, generation, epoch, worker)
 WHERE m.queue = u.queue AND m.message_id = u.message_id AND m.generation = u.generation
   AND m.state = 'live' AND m.epoch = u.epoch AND m.locked_by = u.worker
RETURNING m.queue, m.message_id, m.generation, m.epoch, m.visible_at

-- name: message_complete (sqlite)
UPDATE {ops}.messages AS m
   SET state = 'done', ended_at = $1, body = NULL
  FROM json_each($2) u
 WHERE m.queue = json_extract(u.value, '$[0]') AND m.message_id = json_extract(u.value, '$[1]')
   AND m.generation = json_extract(u.value, '$[2]') AND m.state = 'live'
   AND m.epoch = json_extract(u.value, '$[3]') AND m.locked_by = json_extract(u.value, '$[4]')
RETURNING queue, message_id, generation, epoch, visible_at

-- name: message_renew (postgres)
-- Differs: the receipts are arrays on PostgreSQL, where the database may give the time, and one JSON text on SQLite.
UPDATE {ops}.messages m
   SET visible_at = coalesce($1::timestamptz, clock_timestamp()) + q.lock_secs * interval '1 second'
  FROM unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::uuid[])
           AS u (queue, message_id, generation, epoch, worker)
  JOIN {ops}.queues q ON q.queue = u.queue
 WHERE m.queue = u.queue AND m.message_id = u.message_id AND m.generation = u.generation
   AND m.state = 'live' AND m.epoch = u.epoch AND m.locked_by = u.worker
RETURNING m.queue, m.message_id, m.generation, m.epoch, m.visible_at

-- name: message_renew (sqlite)
UPDATE {ops}.messages AS m
   SET visible_at = $1 + 1000000 * (SELECT q.lock_secs FROM {ops}.queues q WHERE q.queue = m.queue)
  FROM json_each($2) u
 WHERE m.queue = json_extract(u.value, '$[0]') AND m.message_id = json_extract(u.value, '$[1]')
   AND m.generation = json_extract(u.value, '$[2]') AND m.state = 'live'
   AND m.epoch = json_extract(u.value, '$[3]') AND m.locked_by = json_extract(u.value, '$[4]')
RETURNING queue, message_id, generation, epoch, visible_at

-- name: message_abandon
-- Returns a message to the queue. The epoch stays, so that a repeated request is recognised.
UPDATE {ops}.messages
   SET locked_by = NULL, ready_at = $6, visible_at = $6, deliveries = deliveries - $7, last_error = $8
 WHERE queue = $1 AND message_id = $2 AND generation = $3 AND state = 'live' AND epoch = $4 AND locked_by = $5

-- name: message_kill
UPDATE {ops}.messages
   SET state = 'dead', ended_at = $6, dead_reason = $7, last_error = $8
 WHERE queue = $1 AND message_id = $2 AND generation = $3 AND state = 'live' AND epoch = $4 AND locked_by = $5

-- name: message_release (postgres)
-- Ends the locks of one worker, or of all workers that have ended. Expired locks need no release. A message keeps its
-- position in the queue.
-- Differs: on PostgreSQL the function release_messages reads nothing unless a worker has died recently.
SELECT queue, message_id, generation FROM {ops}.release_messages($2, $1)

-- name: message_release (sqlite)
UPDATE {ops}.messages
   SET locked_by = NULL, visible_at = ready_at
 WHERE state = 'live' AND visible_at > $1
   AND (locked_by = $2
        OR $2 IS NULL AND locked_by IN (SELECT w.worker_id FROM {ops}.workers w WHERE w.ended_at IS NOT NULL))

-- name: message_get
SELECT {message_columns}
  FROM {ops}.messages
 WHERE queue = $1 AND message_id = $2 AND generation = $3

-- name: message_peek
SELECT {message_columns}
  FROM {ops}.messages
 WHERE queue = $1 AND state = 'live'
 ORDER BY visible_at, message_id, generation LIMIT $2

-- name: message_held
-- The messages that workers hold, in all queues. An expired lock holds nothing.
SELECT {message_columns}
  FROM {ops}.messages
 WHERE state = 'live' AND locked_by IS NOT NULL AND visible_at > $1
 ORDER BY locked_by, queue, message_id, generation LIMIT $2

-- name: message_dead
-- The oldest first. A page begins after the last message of the previous page.
SELECT {message_columns}
  FROM {ops}.messages
 WHERE queue = $1 AND state = 'dead' AND (ended_at, message_id, generation) > ($2, $3, $4)
 ORDER BY ended_at, message_id, generation LIMIT $5

-- name: message_replay_copy
-- Inserts the next generation of dead letters, with all deliveries left. Inserts nothing if that generation exists: the
-- letter was replayed or retried before.
INSERT INTO {ops}.messages (queue, message_id, generation, grp, body, run_id, trace_id, enqueued_at, ready_at,
                            visible_at, expires_at)
SELECT m.queue, m.message_id, m.generation + 1, m.grp, m.body, m.run_id, m.trace_id, $3, $3, $3, $4
  FROM {ops}.messages m
 WHERE m.queue = $1 AND m.state = 'dead' AND (CAST($2 AS text) IS NULL OR m.message_id = $2)
 ORDER BY m.ended_at, m.message_id, m.generation
    ON CONFLICT (queue, message_id, generation) DO NOTHING

-- name: message_replay_done
-- Completes the dead letters that have a next generation. Like any completed message, they are remembered for the
-- deduplication window, so that their id cannot be sent again.
UPDATE {ops}.messages
   SET state = 'done', ended_at = $3, body = NULL, locked_by = NULL
 WHERE queue = $1 AND state = 'dead' AND (CAST($2 AS text) IS NULL OR message_id = $2)
   AND EXISTS (SELECT 1 FROM {ops}.messages n
                WHERE n.queue = messages.queue AND n.message_id = messages.message_id
                  AND n.generation = messages.generation + 1)

-- name: message_depth
-- Completed messages are in neither index and are not read.
SELECT grp,
       count(*) FILTER (WHERE visible_at <= $2) AS waiting,
       count(*) FILTER (WHERE visible_at > $2 AND locked_by IS NULL) AS delayed,
       count(*) FILTER (WHERE visible_at > $2 AND locked_by IS NOT NULL) AS in_flight,
       CAST(0 AS bigint) AS dead,
       min(CASE WHEN visible_at <= $2 THEN enqueued_at END) AS oldest_at
  FROM {ops}.messages WHERE queue = $1 AND state = 'live' GROUP BY grp
UNION ALL
SELECT grp, CAST(0 AS bigint), CAST(0 AS bigint), CAST(0 AS bigint), count(*), NULL
  FROM {ops}.messages WHERE queue = $1 AND state = 'dead' GROUP BY grp
ORDER BY 1

-- name: message_expire
-- Messages that expired before a worker received them. A receive does the same to those that it finds.
UPDATE {ops}.messages
   SET state = 'dead', ended_at = $1, dead_reason = 'expired', locked_by = NULL
 WHERE state = 'live' AND expires_at <= $1 AND visible_at <= $1
   AND (queue, message_id, generation) IN (
       SELECT m.queue, m.message_id, m.generation FROM {ops}.messages m
        WHERE m.state = 'live' AND m.expires_at <= $1 AND m.visible_at <= $1 LIMIT $2)
RETURNING {message_columns}

-- name: message_prolong (postgres)
-- Updates a message only when half of its time is over.
-- Differs: lists are arrays on PostgreSQL and JSON on SQLite.
UPDATE {ops}.messages SET expires_at = $4
 WHERE queue = $1 AND grp = ANY ($2) AND state = 'live' AND expires_at < $3

-- name: message_prolong (sqlite)
UPDATE {ops}.messages SET expires_at = $4
 WHERE queue = $1 AND grp IN (SELECT value FROM json_each($2)) AND state = 'live' AND expires_at < $3

-- name: message_purge
DELETE FROM {ops}.messages
 WHERE queue = $1 AND state = $2 AND ended_at <= $3
   AND (queue, message_id, generation) IN (
       SELECT m.queue, m.message_id, m.generation FROM {ops}.messages m
        WHERE m.queue = $1 AND m.state = $2 AND m.ended_at <= $3 LIMIT $4)

-- name: queue_put
INSERT INTO {ops}.queues (queue, lock_secs, deliveries_max, window_secs, expiry_secs) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (queue) DO UPDATE
   SET lock_secs = excluded.lock_secs, deliveries_max = excluded.deliveries_max,
       window_secs = excluded.window_secs, expiry_secs = excluded.expiry_secs

-- name: queue_list
SELECT queue, lock_secs, deliveries_max, window_secs, expiry_secs
  FROM {ops}.queues
 WHERE CAST($1 AS text) IS NULL OR queue = $1
 ORDER BY queue

-- name: message_of_run
-- Live and dead messages of a sync. The feed is part of the search, because live messages are indexed by it.
SELECT queue, message_id, generation, 0 AS dead, dead_reason, last_error, locked_by, visible_at
  FROM {ops}.messages
 WHERE queue IN ('work-items', 'consolidate') AND grp = $2 AND state = 'live' AND run_id = $1
UNION ALL
SELECT queue, message_id, generation, 1 AS dead, dead_reason, last_error, NULL, visible_at
  FROM {ops}.messages
 WHERE queue IN ('work-items', 'consolidate') AND state = 'dead' AND run_id = $1
