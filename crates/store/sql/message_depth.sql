-- What is done is in neither index and is not read.
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
