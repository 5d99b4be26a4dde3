-- Appends events. Events of transitions are written by the triggers in run_events.sql.

-- name: append_lookup
-- The run's lease, whether the caller holds it, and which of the digests and keys in $4 exist: a JSON object from
-- digest or key to event id. Events without a key count only if they are younger than $5.
SELECT r.status, r.epoch, r.lease_until, r.lease_secs, r.stalled_at, r.cancel_requested_at,
       {caller_holds_run} AS is_held,
       (SELECT json_group_object(known.same_as, known.event_id) FROM (
            SELECT e.same_as, e.event_id, min(e.seq) FROM run_events e
             WHERE e.run_id = r.run_id AND e.same_as IN (SELECT value FROM json_each($4))
               AND (e.event_key IS NOT NULL OR e.created_at > $5)
             GROUP BY e.same_as) known) AS known
  FROM (SELECT $1 AS run_id, $2 AS worker, $3 AS epoch) caller
  JOIN runs r ON r.run_id = caller.run_id

-- name: append_insert
-- Each event is a JSON array: level, message, payload, key, digest.
INSERT INTO run_events (run_id, seq, level, message, payload, event_key, same_as, created_at)
SELECT $1, (SELECT coalesce(max(e.seq), 0) FROM run_events e WHERE e.run_id = $1) + new.key + 1,
       new.value ->> 0, new.value ->> 1, new.value ->> 2, new.value ->> 3, new.value ->> 4, $3
  FROM json_each($2) new ORDER BY new.key
RETURNING seq, event_id

-- name: append_request
-- Records a request for a run, such as a cancel or a retry.
INSERT INTO run_events (run_id, seq, kind, level, message, payload, created_at)
SELECT $1, coalesce(max(e.seq), 0) + 1, 'request', $2, $3, $4, $5
  FROM run_events e WHERE e.run_id = $1

-- name: append_refusal
-- Records a refused call once per run, verb and epoch: a stale worker that calls every second adds one event.
INSERT INTO run_events (run_id, seq, kind, level, message, payload, same_as, created_at)
SELECT $1, (SELECT coalesce(max(e.seq), 0) + 1 FROM run_events e WHERE e.run_id = $1),
       'refusal', 'warn', $2, $3, $4, $5
 WHERE NOT EXISTS (SELECT 1 FROM run_events e WHERE e.run_id = $1 AND e.same_as = $4)
