-- What is live or dead of a sync: found by its feed, because what is live is indexed by it.
SELECT queue, message_id, generation, 0 AS dead, dead_reason, last_error, locked_by, visible_at
  FROM {ops}.messages
 WHERE queue IN ('work-items', 'consolidate') AND grp = $2 AND state = 'live' AND run_id = $1
UNION ALL
SELECT queue, message_id, generation, 1 AS dead, dead_reason, last_error, NULL, visible_at
  FROM {ops}.messages
 WHERE queue IN ('work-items', 'consolidate') AND state = 'dead' AND run_id = $1
