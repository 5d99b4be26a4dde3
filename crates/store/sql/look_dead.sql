SELECT queue, grp, count(*) AS dead, max(ended_at) AS last_at
  FROM {ops}.messages WHERE state = 'dead' GROUP BY queue, grp ORDER BY queue, grp LIMIT 1000
